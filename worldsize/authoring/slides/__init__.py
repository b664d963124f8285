"""Slides of the executed labs, for whoever teaches them: questions, pictures, sentences, and the prose as speaker notes."""
