"""Commands of operators: rows in the records, and events."""
