"""Sources: Git revisions and their changed files. Reads objects, never a work tree."""
