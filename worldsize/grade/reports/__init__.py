"""Reports on a grading: tables, feedback pages, similarity, exports."""
