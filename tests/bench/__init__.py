"""Speed, measured beside its budget."""
