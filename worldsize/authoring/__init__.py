"""The build of the course's files from its sources: notebooks, the students' bundle, headless runs, the shipped data."""
