"""JSON as RFC 8259 has it: its events, its files among others, its text after a change."""
