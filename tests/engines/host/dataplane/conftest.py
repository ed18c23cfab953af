"""Which HAProxy the tests use, ``HAPROXY=PATH`` or the installed one, and where its location is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.host.dataplane.haproxy.kit import end
from tests.support.programs import tool


@pytest.fixture(autouse=True, scope="package")
def chosen_haproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the HAProxy at ``HAPROXY`` be found first."""
    with pytest.MonkeyPatch.context() as patch:
        if chosen := os.environ.get("HAPROXY"):
            directory = tmp_path_factory.mktemp("haproxy")
            (directory / "haproxy").symlink_to(Path(chosen).resolve())
            patch.setenv("PATH", str(directory), prepend=os.pathsep)
        yield


@pytest.fixture(name="path")
def own_path(tmp_path: Path) -> Iterator[Path]:
    """The directory of a location, whose HAProxy ends after the test."""
    tool("haproxy", "haproxy")
    yield tmp_path
    end(tmp_path)


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a location, whose HAProxy ends after the last test of the module."""
    tool("haproxy", "haproxy")
    path = tmp_path_factory.mktemp("location")
    yield path
    end(path)
