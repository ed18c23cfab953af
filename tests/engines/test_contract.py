"""Every engine keeps every promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.engines.protocol import Engine
from reconciler.engines.recorded import RecordedEngine
from tests.engines.contract import PROMISES, Factory, Subject
from tests.engines.ledger import LedgerEngine
from tests.engines.plans import Bench


def recorded(bench: Bench, _path: Path) -> Engine:
    return RecordedEngine(bench.records, "here", "acme", "example.net", bench.clock)


def ledger(_bench: Bench, path: Path) -> Engine:
    return LedgerEngine(path)


@pytest.mark.parametrize("factory", [recorded, ledger], ids=lambda made: made.__name__)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_engines_keep_their_promises(promise: Callable[[Subject], None], factory: Factory, tmp_path: Path) -> None:
    promise(Subject(factory, tmp_path))
