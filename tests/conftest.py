"""Settings of every test: the number of examples of a property, and a garbage collector that skips the tests."""

from __future__ import annotations

import gc

import pytest

import tests.support.examples  # noqa: F401

FIRST = ("test_demo.py", "test_guides.py")
"""Tests that wait long, after those that need the one Podman service: a second worker would wait for it in vain."""

gc.disable()  # a quarter of the time that collection takes goes into modules, which stay


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with tests that wait, where one worker begins, and from where no other takes some when its own are done."""

    def place(item: pytest.Item) -> tuple[bool, bool]:
        return not hasattr(getattr(item, "module", None), "podman_service"), not item.path.name.endswith(FIRST)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Begin with nothing to scan: the objects that imports and collection have made are a million."""
    gc.collect()
    gc.freeze()
    gc.collect()  # full collections wait until a quarter more objects exist than after the last one: now of few
    gc.enable()
