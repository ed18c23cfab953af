"""Images of containers: references, registries, pulls, the digests of versions, and the room that images take."""
