"""The records: everything that survives a restart, in one SQLite file."""
