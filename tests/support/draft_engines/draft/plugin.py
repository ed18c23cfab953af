"""About the least that an engine needs which runs workloads: in memory, with replicas, logs, sessions and senders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.context import EngineContext
from reconciler.engines.protocol import Observation, Outcome, Result
from reconciler.engines.reading import (
    ALWAYS,
    ContainerRow,
    ExecTarget,
    LogLine,
    LogSelection,
    LogSpan,
    LogStream,
    ReplicaRow,
    ReplicaState,
    Sender,
)
from reconciler.engines.volumes import make_rejection
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.engines.workload.tokens import make_token
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import read_specification
from reconciler.model.record import Health
from reconciler.planning.plan import Action, Step
from reconciler.settings import Settings
from reconciler.terminal.session import ExecSession, TerminalSize
from tests.engines.host.fake import FakeSession


class DraftLocation(msgspec.Struct):
    """A location: what was performed, what was printed, and the tokens of workloads."""

    steps: dict[Key, Step] = {}
    lines: list[LogLine] = []
    tokens: dict[Key, str] = {}


WORLDS: defaultdict[tuple[Path, str], DraftLocation] = defaultdict(DraftLocation)
"""By state directory and location, as long as the process lives."""


class LineBlock(msgspec.Struct):
    """One line."""

    content: bytes

    def text(self) -> bytes:
        return self.content + b"\n"

    def lines(self, text: bytes | None = None) -> Sequence[bytes]:
        return [self.content]


class DraftEngine:
    """Replicas are rows, which are ready at once and print one line each."""

    name, parallel, immediate, can_drift = "draft", 4, False, True

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._world = WORLDS[context.settings.state, context.location]

    async def observe(self) -> list[Observation]:
        return [self._observation(step) for _, step in sorted(self._world.steps.items())]

    async def perform(self, step: Step) -> Outcome:
        if step.action is Action.DELETE:
            self._world.steps.pop(step.key, None)
            return Outcome(step.id, Result.APPLIED)
        if step != self._world.steps.get(step.key):
            self._world.steps[step.key] = step
            self._world.tokens.setdefault(step.key, make_token(step.location, step.key))
            self._world.lines += (
                LogLine(round(self._context.clock.now() * 1000), stream_of(row), b"started") for row in rows_of(step)
            )
        return Outcome(step.id, Result.APPLIED, seen=self._observation(step))

    async def command(self, key: Key, name: str, spec: dict[str, Any], command_id: str = "") -> dict[str, Any]:
        raise make_rejection(f"{key} takes no command {name}")

    def _observation(self, step: Step) -> Observation:
        return Observation(step.key, step.location, Health.HEALTHY, b"{}", step.digest, step.version)


def rows_of(step: Step) -> list[ReplicaRow]:
    """The replicas of a workload."""
    if step.key.kind is not Kind.WORKLOAD:
        return []
    applied = AppliedWorkload(step.key, step.location, read_specification(step.body), step.version, step.digest)
    spec = workload_spec(applied, "")
    containers = tuple(ContainerRow(container.name, "running") for container in spec.containers)
    names = (f"{step.key.name}-{number}" for number in range(spec.replicas))
    return [
        ReplicaRow(step.key, step.location, name, step.version, ReplicaState.READY, containers, cpu=5, memory=1 << 20)
        for name in names
    ]


def stream_of(row: ReplicaRow) -> LogStream:
    return LogStream(row.key.gvc, row.key.name, row.name, row.containers[0].name, row.location)


class DraftSearch:
    """What ``selection`` takes of the lines."""

    def __init__(self, lines: list[LogLine], selection: LogSelection) -> None:
        self._lines, self._selection, self._end = lines, selection, len(lines)

    def backward(self, span: LogSpan = ALWAYS) -> Iterator[LogLine]:
        return (line for line in reversed(self._select(self._lines)) if span.since <= line.ms <= span.until)

    def more(self) -> list[LogLine]:
        new, self._end = self._lines[self._end :], len(self._lines)
        return self._select(new)

    def _select(self, lines: list[LogLine]) -> list[LogLine]:
        streams, texts = self._selection
        found = (line for line in lines if streams(line.stream.labels()))
        return [line for line in found if texts(LineBlock(line.text), line.stream.labels())]


class DraftReader:
    """Shows what a ``DraftLocation`` has."""

    engine = DraftEngine.name

    def __init__(self, settings: Settings, location: str) -> None:
        self.location = location
        self._world = WORLDS[settings.state, location]

    def replicas(self) -> list[ReplicaRow]:
        return [row for _, step in sorted(self._world.steps.items()) for row in rows_of(step)]

    def log_streams(self) -> list[LogStream]:
        return sorted({line.stream for line in self._world.lines})

    def search_logs(self, selection: LogSelection) -> DraftSearch:
        return DraftSearch(self._world.lines, selection)

    async def open_session(self, target: ExecTarget, argv: Sequence[str], terminal: TerminalSize | None) -> ExecSession:
        return FakeSession(argv, terminal)

    def has_token(self, key: Key, token: str) -> bool:
        return self._world.tokens.get(key) == token

    def is_sender(self, key: Key, token: str, sender: Sender) -> bool:
        return sender == 1


class DraftPlugin:
    """The draft."""

    name, runs_workloads = DraftEngine.name, True

    def make(self, context: EngineContext) -> DraftEngine:
        return DraftEngine(context)

    def make_reader(self, settings: Settings, location: str) -> DraftReader:
        return DraftReader(settings, location)


PLUGIN = DraftPlugin()
