"""The reference pages of docs/, made from the code; `python -m tests.docs` writes them."""
