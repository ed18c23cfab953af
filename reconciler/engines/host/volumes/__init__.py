"""The volumes of volume sets on the disks of this host: created, mounted, expanded, snapshotted and restored."""
