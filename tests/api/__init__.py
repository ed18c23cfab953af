"""The HTTP API: handlers over real records, and the process over real sockets."""
