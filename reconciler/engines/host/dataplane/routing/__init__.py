"""Which request goes to which workload: host names and paths, from what is applied. Pure but for its router."""
