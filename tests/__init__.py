"""Everything that the reconciler is held to."""
