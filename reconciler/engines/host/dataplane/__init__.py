"""Ready replicas and how requests reach them."""
