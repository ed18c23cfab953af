"""Settings of every test: the number of examples of a property, and a garbage collector that skips the tests."""

from __future__ import annotations

import gc

import pytest

import tests.support.examples  # noqa: F401

FIRST = ("podman/test_real.py", "test_example_runtimes.py", "test_demo.py", "test_guides.py")
"""Tests that wait longest, beginning with those that share one Podman service: a second worker would wait for it."""

gc.disable()  # a quarter of the time that collection takes goes into modules, which stay


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put FIRST first, where one worker begins, and from where no other takes tests when it runs out of its own."""
    items.sort(key=lambda item: [not item.path.as_posix().endswith(end) for end in FIRST])


def pytest_collection_finish() -> None:
    """Begin with nothing to scan: the objects that imports and collection have made are a million."""
    gc.collect()
    gc.freeze()
    gc.enable()
