"""The tables of the records, one module each."""
