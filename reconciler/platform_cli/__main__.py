"""`python -m reconciler.platform_cli` is the `platform` command."""

from __future__ import annotations

from reconciler.platform_cli.main import main

if __name__ == "__main__":
    main()
