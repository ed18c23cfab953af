"""Git in; Revision and changed files out. Reads objects, never a work tree."""
