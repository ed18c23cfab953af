"""Changes of manifests: each becomes a commit in a source, after the whole tree that results was checked."""
