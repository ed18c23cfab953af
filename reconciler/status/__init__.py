"""Outcomes in; conditions, health, status files and events out."""
