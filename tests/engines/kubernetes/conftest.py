"""A cluster with pods for the tests of the reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.kubernetes.reading_kit import ReadCluster, read_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReadCluster]:
    """The namespace ``shop`` on a fake API server, without pods."""
    with read_cluster(tmp_path) as cluster:
        yield cluster
