"""The `platform` command: the HTTP API on the command line, and nothing else of the daemon."""
