"""`python -m tests.bench.trace`: how many modules one applied change goes through, and how often it changes packages.

A workload's image changes and `reconciler apply` takes it up, with the engine `recorded`. A module counts once one of
its functions is called. A switch is a call of a function in another package of the reconciler than that of the function
that was called before it, in the same thread or not. What importing runs does not count. The second figure leaves out
the leaves, `model/` and single modules: a value's own function (a key as text) leads nowhere else.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Any

from tests.support.sandbox import ROOT, DaemonSandbox, workload

PACKAGE = f"{ROOT / 'reconciler'}/"
MOST_PAIRS = 20


class Trace:
    """Calls of the reconciler's functions, in every thread, while it is on."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()
        self.switches: Counter[tuple[str, str]] = Counter()
        self.without_leaves = 0
        self._package = self._room = ""
        self._lock = Lock()

    def __enter__(self) -> Trace:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # The body of a module or class, which importing runs, is not optimized.
        if event != "call" or not code.co_filename.startswith(PACKAGE) or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        module = code.co_filename.removeprefix(PACKAGE)
        package = module.partition("/")[0]
        with self._lock:
            self.modules[module] += 1
            if package != self._package:
                self.switches[self._package, package] += 1
                self._package = package
            if package not in {self._room, "model"} and not package.endswith(".py"):
                self.without_leaves += 1
                self._room = package


def main() -> None:
    """Print both figures, and where most switches are."""
    with tempfile.TemporaryDirectory() as path:
        sandbox = DaemonSandbox(Path(path))
        sandbox.run("apply")
        sandbox.repo.commit({"shop/api.yaml": workload("api", 8081)})
        from reconciler.cli import main as reconciler

        sys.argv = ["reconciler", "apply", "--settings", str(sandbox.settings_file)]
        with Trace() as trace:
            try:
                reconciler()
            except SystemExit as ended:
                print(f"exit code {ended.code}")
    print(f"{len(trace.modules)} modules, {trace.switches.total()} switches between packages")
    print(f"{trace.without_leaves} switches without leaves")
    for (before, after), count in trace.switches.most_common(MOST_PAIRS):
        print(f"{count:5} {before or '-'} → {after}")


if __name__ == "__main__":
    main()
