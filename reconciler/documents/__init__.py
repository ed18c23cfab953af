"""From bytes to Documents: bounded values with their positions, for manifests and settings alike."""
