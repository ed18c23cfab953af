"""Queries: read-only answers from the records, for the commands."""
