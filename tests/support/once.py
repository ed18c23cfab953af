"""Values that are expensive to make and only read are made once a run of the tests, for any number of workers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.workers import VARIABLE


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The directory ``name``, filled by ``make`` in the worker that needs it first; the others wait for that."""
    if VARIABLE not in os.environ:
        path = factory.mktemp(name)
        make(path)
        return path
    path = factory.getbasetemp().parent / f"once-{name}"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = path.with_suffix(".whole")
        if not whole.exists():
            path.mkdir()
            make(path)
            whole.touch()
    return path
