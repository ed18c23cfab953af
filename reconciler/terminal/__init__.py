"""Connects a program inside a container with this terminal, or with these pipes."""
