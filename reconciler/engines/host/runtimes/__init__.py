"""What starts and stops containers on this host, behind one protocol."""
