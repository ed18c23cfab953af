"""What only the daemon's memory has for metrics; it goes to the process of the API with each beat."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reconciler import tracing

if TYPE_CHECKING:
    from reconciler.pipeline.runner import Runner


class CallTotal(NamedTuple):
    """How many calls of the engine at a location had an operation and a result ("": success)."""

    location: str
    operation: str
    reason: str
    number: int


class Measurements(msgspec.Struct, frozen=True):
    """Calls of engines; when each source was last read and its status written (seconds since the epoch); and spans of
    traces by what became of them."""

    calls: tuple[CallTotal, ...] = ()
    read: dict[str, float] = {}
    written: dict[str, float] = {}
    spans: dict[str, int] = {}


def collect_measurements(runner: Runner) -> Measurements:
    """The measurements of ``runner`` since it was made."""
    calls: Counter[tuple[str, str, str]] = Counter()
    for counted in (runner.executor.calls, runner.drift_monitor.calls, runner.commands.calls):
        calls.update(counted)
    written = {
        name: publisher.written_at for name, publisher in runner.writers.items() if publisher.written_at is not None
    }
    totals = tuple(CallTotal(*call, count) for call, count in sorted(calls.items()))
    return Measurements(totals, dict(runner.conditions.read_at), written, dict(tracing.count_spans()))


def encode_beat(measured: Measurements) -> bytes:
    """``measured`` as a line."""
    return msgspec.json.encode(measured) + b"\n"


def decode_beat(line: bytes) -> Measurements:
    """The inverse of ``encode_beat``."""
    return msgspec.json.decode(line, type=Measurements)
