"""What containers get: variables, secrets, files and ports."""
