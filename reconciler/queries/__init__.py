"""What may be read: answers from the records, for the commands."""
