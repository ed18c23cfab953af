"""The volume sets of the host engine: who holds their volumes, and what changes them."""
