"""``python -m reconciler.api``: the process of the HTTP API, which the daemon starts."""

from __future__ import annotations

import sys
from types import ModuleType


class _CommandLine(ModuleType):
    """The part of ``uvicorn.main`` that its package imports, of which nothing is used here."""

    Server = main = run = None


if __name__ == "__main__":
    # With click and multiprocessing, which nothing else needs, it would take 2 MB.
    sys.modules["uvicorn.main"] = _CommandLine("uvicorn.main")

    from reconciler.api.server import main

    main()
