"""Records in a file of their own for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.records.store import FILE, Records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / FILE


@pytest.fixture
def records(path: Path) -> Iterator[Records]:
    opened = Records.open(path, clock_now=lambda: 1000.0)
    yield opened
    opened.close()
