"""Overviews: what people read, each once, for the command line, the HTTP API and readers without the records."""
