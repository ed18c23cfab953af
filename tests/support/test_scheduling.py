"""Tests that wait come first in the parts of some workers, and every test comes once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.scheduling import WAITING, arranged

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("workers", [2, 4, 5, 10])
def test_every_test_comes_once(request: pytest.FixtureRequest, workers: int) -> None:
    items = request.session.items
    found = arranged(items, workers)
    assert len(found) == workers
    assert sorted(item.nodeid for part in found for item in part) == sorted(item.nodeid for item in items)


class Fake:
    """What the order looks at."""

    def __init__(self, path: str, number: int) -> None:
        self.nodeid = f"{path}::test_{number}"
        self.module = None


@pytest.mark.parametrize(("workers", "waiting"), [(2, 1), (4, 2), (5, 3)])
def test_equal_parts_of_half_of_the_workers_begin_with_tests_that_wait(workers: int, waiting: int) -> None:
    plain = [Fake("tests/model/test_cron.py", number) for number in range(1000 - 2 * len(WAITING))]
    items: list[Any] = [*plain, *(Fake(path, number) for path in WAITING for number in range(2))]
    parts = [[item.nodeid.partition("::")[0] in WAITING for item in part] for part in arranged(items, workers)]
    assert {len(part) for part in parts} == {1000 // workers}
    assert [part[0] for part in parts] == [number < waiting for number in range(workers)]
    assert all(part == sorted(part, reverse=True) for part in parts)


def test_modules_that_wait_exist() -> None:
    assert [path for path in WAITING if not (ROOT / path).exists()] == []
