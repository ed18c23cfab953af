"""The table of routes of a location."""
