"""The reference pages of docs/, made from the code; `python -m docs.generate` writes them."""
