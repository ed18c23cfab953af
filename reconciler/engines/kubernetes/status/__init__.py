"""What objects of a cluster mean in the platform's words: health, deployments, volumes and replicas; pure."""
