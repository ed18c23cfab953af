"""What operators ask for: rows in the records, and events."""
