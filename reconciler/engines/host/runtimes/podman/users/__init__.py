"""User namespaces of containers: the ids that their users have on this host, and volumes with the right owners."""
