"""What objects of a cluster mean in the words of the platform."""
