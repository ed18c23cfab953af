"""Settings of every test: the number of examples of a property, and a garbage collector that skips the tests."""

from __future__ import annotations

import gc
import os

import pytest

import tests.support.examples  # noqa: F401
from tests.support.lanes import arranged

gc.disable()  # a quarter of the time that collection takes goes into modules, which stay


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread tests that wait over the workers, once those are left out that are not run."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = arranged(items, workers)


def pytest_collection_finish() -> None:
    """Begin with nothing to scan: the objects that imports and collection have made are a million."""
    gc.collect()
    gc.freeze()
    gc.collect()  # full collections wait until a quarter more objects exist than after the last one: now of few
    gc.set_threshold(2000, 10, 20)  # with (700, 10, 10) collections took a tenth of the CPU time
    gc.enable()
