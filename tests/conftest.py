"""Settings of every test: examples of a property, workers, trusted authorities, event loops, collection of garbage."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
import tempfile
from pathlib import Path

import pytest

import tests.support.examples
import tests.support.trust  # noqa: F401
from reconciler import logs
from tests.support.scratch import own_place

pytest_plugins = ["tests.support.workers"]

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process that a test starts would compile all modules again
# Workloads run `python3`: where a version manager puts a shell script in its way, each start costs ten times as much.
os.environ["PATH"] = ":".join(
    f"{sys.base_prefix}/bin" if folder.endswith("/shims") else folder for folder in os.environ["PATH"].split(":")
)
gc.disable()  # a quarter of the time that collection takes goes into modules, which stay


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give this run its own directory for temporary files, unless it was given one."""
    if config.option.basetemp is None:
        config.option.basetemp = str(own_place(Path(tempfile.gettempdir())))


def pytest_runtest_setup() -> None:
    """Forget how an earlier test wanted to log: with the next line that would take effect, and end its capture."""
    logs._configure_now = None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


def pytest_collection_finish() -> None:
    """Begin with nothing to scan: the objects that imports and collection have made are a million."""
    gc.collect()
    gc.freeze()
    gc.collect()  # full collections wait until a quarter more objects exist than after the last one: now of few
    gc.set_threshold(2000, 10, 20)  # with (700, 10, 10) collections took a tenth of the CPU time
    gc.enable()
