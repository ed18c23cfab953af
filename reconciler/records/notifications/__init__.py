"""The tables of notifications."""
