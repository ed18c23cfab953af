"""What Podman answers, and the requests to it."""
