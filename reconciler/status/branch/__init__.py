"""The Git branch that status files are committed to."""
