"""Features that meet: each pair is run on a real daemon under load."""
