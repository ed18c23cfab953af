"""A draft of an engine; tests/support/draft.py puts its folder among those of engines."""
