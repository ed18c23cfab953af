"""What others read of a location of this host, without its engine."""
