"""The course's site: pages of the executed labs with their exercises left open, and the other pages."""
