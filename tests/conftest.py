"""Settings of every test: the number of examples of a property, and a garbage collector that skips the tests."""

from __future__ import annotations

import gc

import tests.support.examples  # noqa: F401

gc.disable()  # a quarter of the time that collection takes goes into modules, which stay


def pytest_collection_finish() -> None:
    """Begin with nothing to look through: what is imported and collected until now are a million objects."""
    gc.collect()
    gc.freeze()
    gc.enable()
