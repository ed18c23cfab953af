"""The table of the commands: kinds, rows and examples. The commands and their reference page come from it."""
