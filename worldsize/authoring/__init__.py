"""What makes the course's files from its sources: notebooks, the students' bundle, headless runs, the data that ships."""
