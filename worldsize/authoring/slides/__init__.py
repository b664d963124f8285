"""Slides of the executed labs, for teachers: questions, pictures, sentences, and the prose as speaker notes."""
