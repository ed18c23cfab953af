"""``python -m reconciler.api``: the process that the daemon starts."""

from __future__ import annotations

import sys
from types import ModuleType


class _CommandLine(ModuleType):
    """The part of ``uvicorn.main`` that its package imports: nothing of it is used here."""

    Server = main = run = None


# With click and multiprocessing, which nothing else needs, it would take 2 MB.
sys.modules["uvicorn.main"] = _CommandLine("uvicorn.main")

from reconciler.api.server import main  # noqa: E402 - the line above must come first

main()
