"""What stands round a picture's data: the question, the finding in words, and scales that say what they are."""
