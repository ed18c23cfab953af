"""Images of containers: references, registries, pulls, the digests of versions, and the disk space of images."""
