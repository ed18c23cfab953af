"""Lists of the command: what is chosen, in which form, and shown again."""
