"""The processes of HAProxy: what former ones still have, and whether they work."""
