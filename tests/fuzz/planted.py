"""Targets with a fault put into them, so that a test can see fuzzing find it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from tests.fuzz.targets import Target

_leaked: list[bytes] = []


def _seeds() -> Iterator[bytes]:
    yield b"kind: gvc\n"


def _raises(raw: bytes) -> None:
    if b":" not in raw:
        raise RuntimeError("a fault that was put here")


def _hangs(raw: bytes) -> None:
    while b":" not in raw:
        pass


def _grows(raw: bytes) -> None:
    while b":" not in raw:
        if len(_leaked) < 100:
            _leaked.append(bytes(range(256)) * (1 << 14))


def _dies(raw: bytes) -> None:
    if b":" not in raw:
        os.kill(os.getpid(), signal.SIGKILL)


PLANTED = {f"planted-{check.__name__[1:]}": Target(check, _seeds) for check in (_raises, _hangs, _grows, _dies)}
"""By name, as ``targets.TARGETS``."""
