"""How many replicas there shall be, and how large they could be."""
