"""Snapshots of volumes off the host: copied to a repository of restic, and back."""
