"""The HTTP API: a process of its own, which reads the records and writes rows and commits."""
