"""Plan in, Outcomes out; the only package that changes the world."""
