"""A typed view of each kind."""
