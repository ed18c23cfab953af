"""The straight line from a commit to recorded state; the only package that knows every stage."""
