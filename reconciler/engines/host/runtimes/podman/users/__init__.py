"""User namespaces of containers: the ids of this host that their users have, and volumes with the same owners inside."""
