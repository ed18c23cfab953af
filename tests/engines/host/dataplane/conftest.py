"""Which HAProxy the tests use: ``HAPROXY=PATH`` names another one than the installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="package")
def chosen_haproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the HAProxy at ``HAPROXY`` be found first."""
    with pytest.MonkeyPatch.context() as patch:
        if chosen := os.environ.get("HAPROXY"):
            directory = tmp_path_factory.mktemp("haproxy")
            (directory / "haproxy").symlink_to(Path(chosen).resolve())
            patch.setenv("PATH", str(directory), prepend=os.pathsep)
        yield
