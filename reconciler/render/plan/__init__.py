"""Plans as text, Markdown and JSON, from the same counts and groups."""
