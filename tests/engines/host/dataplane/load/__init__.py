"""Load through a data plane, while everything around it changes."""
