"""What each test of forges begins with."""

from __future__ import annotations

import pytest

from reconciler.notifications.forges.client import PACES


@pytest.fixture(autouse=True)
def fresh_pace() -> None:
    """A forge of a former test at the same port limits no request of this one."""
    PACES.clear()
