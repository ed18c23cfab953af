"""The engine whose world is the record."""
