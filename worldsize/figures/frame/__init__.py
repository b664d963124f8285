"""The text and scales round a picture's data: the question, the finding in words, and axes that name their scale."""
