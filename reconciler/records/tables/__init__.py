"""The tables of the records, a module each."""
