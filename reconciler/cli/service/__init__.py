"""The daemon as a systemd service of this machine: what `install` makes and `uninstall` removes."""
