"""Derives conditions, health, status files and events from the outcomes of runs."""
