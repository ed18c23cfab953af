"""Queries: read-only answers from the records and from this host, as values for any renderer."""
