"""What containers are given: variables, secrets, files and ports."""
