"""What holds when the daemon is killed, or its disk is full, in the middle of its work."""
