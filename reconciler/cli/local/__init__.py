"""What `reconciler up` runs on this machine: where it comes from, its settings, and its daemon."""
