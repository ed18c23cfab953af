"""Inputs that others write, by size; each is read as the program reads it."""
