"""What containers are given on this host: ports, variables, files and secrets."""
