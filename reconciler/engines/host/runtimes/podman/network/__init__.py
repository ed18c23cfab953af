"""The network of a location, and the sandboxes that hold it for replicas."""
