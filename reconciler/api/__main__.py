"""``python -m reconciler.api``: the process of the HTTP API, which the daemon starts."""

from __future__ import annotations

from reconciler.api.server import main

if __name__ == "__main__":
    main()
