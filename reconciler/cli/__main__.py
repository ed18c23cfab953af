"""`python -m reconciler.cli` is the `reconciler` command."""

from __future__ import annotations

from reconciler.cli import main

if __name__ == "__main__":
    main()
