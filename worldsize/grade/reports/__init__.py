"""What people read of a grading: tables, pages, similarity, exports."""
