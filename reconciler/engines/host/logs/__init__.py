"""Container logs: collected from output files into compressed segments, and searched there."""
