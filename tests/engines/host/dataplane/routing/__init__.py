"""The table of routes."""
