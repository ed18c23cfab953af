"""What each test of forges begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.notifications.forges.client import PACES
from reconciler.records.store import FILE, Records
from tests.notifications.forges.scene import FILES
from tests.support.pipeline import PipelineHarness


@pytest.fixture(autouse=True)
def fresh_pace() -> None:
    """A forge of a former test at the same port limits no request of this one."""
    PACES.clear()


@pytest.fixture
def shop(tmp_path: Path) -> PipelineHarness:
    """A source whose first commit is applied, with records on disk."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    harness = PipelineHarness(state, FILES, records=Records.open(state / FILE), name="shop")
    harness.applied()
    return harness
