"""Log queries: a subset of LogQL, parsed and evaluated."""
