"""What every engine promises; a function for each promise, run over every engine there is.

An engine plugs in with a Factory; what it makes is opened, used from one event loop and closed. Nothing here knows
what runs behind it: an engine that needs time is asked again until its step is done.
"""

from __future__ import annotations

import asyncio
import copy
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from reconciler.clock import Clock
from reconciler.engines.protocol import Engine, Observation, SupportsLifecycle, SupportsWatch
from reconciler.engines.reading import (
    ExecTarget,
    LocationReader,
    LogSelection,
    ReplicaRow,
    SupportsFinalSnapshots,
    SupportsLogs,
    SupportsReplicaRows,
    SupportsSenders,
    SupportsSessions,
    explain_missing,
)
from reconciler.engines.workload.tokens import make_token
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.planning.plan import Action, Step
from tests.support.plans import ExecutorHarness, ends, plan, step

PATIENCE = 60.0
"""Seconds of real time that an engine may take for a step."""

WEB = "workload/shop/web"
SERVE = """
import os, socket
server = socket.create_server(("", int(os.environ["PORT"])))
while True:
    server.accept()[0].close()
"""
SPEC: dict[str, Any] = {
    "kind": "workload",
    "name": "web",
    "spec": {
        "type": "standard",
        "containers": [
            {
                "name": "main",
                "image": "nginx:1",
                "command": "python3",
                "args": ["-c", SERVE],
                "ports": [{"number": 8080, "protocol": "http"}],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
            }
        ],
        "defaultOptions": {"autoscaling": {"metric": "disabled", "minScale": 2, "maxScale": 3}},
    },
}


class EnginePair(NamedTuple):
    """An engine and the reader of its location."""

    engine: Engine
    reader: LocationReader


class Factory(msgspec.Struct, frozen=True):
    """Makes the engine of the location ``here``; the path is its own scratch directory, the same for each making.

    ``image`` and ``spec`` are fields of the container and of the workload, where programs really run from images.
    ``patience`` are the seconds of real time that a step may take.
    """

    make: Callable[[ExecutorHarness, Path], EnginePair]
    clock: Callable[[], Clock]
    image: str = ""
    spec: dict[str, Any] = {}
    patience: float = PATIENCE


class EngineHarness(ExecutorHarness):
    """An engine under test at ``here``, behind an executor, in one event loop."""

    def __init__(self, factory: Factory, path: Path) -> None:
        super().__init__(path, factory.clock())
        self._factory = factory
        self._path = path / "engine"
        self._loop = asyncio.Runner()
        self._begin()

    def _begin(self) -> None:
        self.engine, self.reader = self._factory.make(self, self._path)
        self.engines["here"] = self.engine
        if isinstance(self.engine, SupportsLifecycle):
            self._loop.run(self.engine.open())

    def begin_anew(self) -> None:
        """As a restart of the daemon does: another engine on what the first one left."""
        self._end()
        self._begin()

    def _end(self) -> None:
        if isinstance(self.engine, SupportsLifecycle):
            self._loop.run(self.engine.close())

    def close(self) -> None:
        """Delete what was made, and let go."""
        self.delete()
        self._end()
        self._loop.close()
        self.records.close()

    def web(self, action: Action = Action.CREATE, version: int = 1, **options: Any) -> Step:
        """A step on a workload; ``options`` are of its autoscaling."""
        body = copy.deepcopy(SPEC)
        body["spec"] |= self._factory.spec
        body["spec"]["containers"][0] |= {"image": self._factory.image} if self._factory.image else {}
        body["spec"]["defaultOptions"]["autoscaling"] |= options
        made = step(WEB, action=action, version=version, body=body, engine=self.engine.name)
        return msgspec.structs.replace(made, digest=f"digest-{version}-{options}") if options else made

    def apply(self, *steps: Step) -> dict[str, str]:
        """Perform and record; where the engine watches, the observation that follows too."""
        ended = ends(self._loop.run(self.run(plan(*steps))))
        if isinstance(self.engine, SupportsWatch):
            for seen in self._loop.run(self.engine.observe_some({step.key for step in steps})):
                self.records.applied.update_seen(seen.key, seen.location, seen.health, seen.state)
        return ended

    def see(self) -> list[Observation]:
        """What the engine observes."""
        return self._loop.run(self.engine.observe())

    def command(self, name: str, **fields: str) -> None:
        """A command for the workload."""
        self._loop.run(self.engine.command(Key.parse(WEB), name, {"location": "here", **fields}))

    def open_session(self, target: ExecTarget) -> str:
        """What `true` ends with in a container, or why it cannot run there."""
        if not isinstance(self.reader, SupportsSessions):
            return explain_missing(self.reader, "sessions")
        try:
            session = self._loop.run(self.reader.open_session(target, ["true"], None))
            self._loop.run(session.close_stdin())
            code = self._loop.run(session.wait())
            self._loop.run(session.close())
        except EngineError as error:
            return str(error)
        return str(code)

    def rows(self) -> Sequence[ReplicaRow]:
        """The replicas that the reader shows; none if it shows none at all."""
        return self.reader.replicas() if isinstance(self.reader, SupportsReplicaRows) else ()

    def healthy(self) -> Observation:
        """The one workload, once it is as it was asked for."""
        return self.until(lambda: next((each for each in self.see() if each.health.is_good), None))

    def delete(self) -> None:
        """Delete the workload; asked again until it is gone."""
        self.until(lambda: self.apply(self.web(Action.DELETE)) == {WEB: "applied"})

    def until(self, condition: Callable[[], Any]) -> Any:
        """What ``condition`` returns once that is something."""
        end = time.monotonic() + self._factory.patience
        while not (answer := condition()):
            assert time.monotonic() < end, f"not within {self._factory.patience:g} s: {self.see()}"
            self._loop.run(asyncio.sleep(0.02))
        return answer


@contextmanager
def subject_of(factory: Factory, path: Path) -> Iterator[EngineHarness]:
    """A subject, closed in the end."""
    harness = EngineHarness(factory, path)
    try:
        yield harness
    finally:
        harness.close()


def observe_shows_what_was_performed(harness: EngineHarness) -> None:
    """And nothing else."""
    assert harness.see() == []
    assert harness.apply(harness.web()) == {WEB: "applied"}
    seen = harness.healthy()
    assert (str(seen.key), seen.location, seen.version, seen.digest) == (WEB, "here", 1, "digest-1")
    harness.apply(harness.web(Action.UPDATE, 2))
    seen = harness.healthy()
    assert (seen.version, seen.digest) == (2, "digest-2")


def to_perform_twice_is_to_perform_once(harness: EngineHarness) -> None:
    """A replay after a crash must not make anything twice, nor restart anything."""
    for action, version in ((Action.CREATE, 1), (Action.UPDATE, 2), (Action.REPLACE, 3)):
        harness.until(
            lambda action=action, version=version: harness.apply(harness.web(action, version)) == {WEB: "applied"}
        )
        once = harness.healthy()
        harness.apply(harness.web(action, version))
        assert harness.healthy() == once
        assert len(harness.see()) == 1


def to_observe_changes_nothing(harness: EngineHarness) -> None:
    """However often."""
    harness.apply(harness.web())
    harness.healthy()
    assert harness.see() == harness.see()


def a_delete_of_what_is_missing_is_fine(harness: EngineHarness) -> None:
    """So that a delete can be repeated."""
    harness.apply(harness.web())
    for _ in range(2):
        harness.delete()
        assert harness.see() == []


def what_is_applied_and_what_is_observed_agree(harness: EngineHarness) -> None:
    """The record carries what observe shows."""
    harness.apply(harness.web())
    seen = harness.healthy()
    (record,) = harness.records.applied.get(WEB)
    assert (record.digest, record.version) == (seen.digest, seen.version)


def more_replicas_are_no_new_version(harness: EngineHarness) -> None:
    """A change of scale alone changes neither the version nor what runs (docs/platform/workload.md#versions)."""
    harness.apply(harness.web())
    before = harness.healthy()
    harness.apply(harness.web(Action.UPDATE, 1, minScale=3))
    after = harness.healthy()
    assert (after.version, after.digest) == (1, "digest-1-{'minScale': 3}")
    if after.state != b"{}":
        assert [replicas_in(one.state) for one in (before, after)] == [2, 3]


def replicas_in(state: bytes) -> int:
    """How many replicas a deployment shall have."""
    [version] = msgspec.json.decode(state)["status"]["versions"]
    return int(version["containers"]["main"]["resources"]["replicas"])


def a_restart_takes_over_what_there_is(harness: EngineHarness) -> None:
    """Another engine on the same state shows the same, down to each replica."""
    harness.apply(harness.web())
    before = harness.healthy()
    harness.begin_anew()
    assert harness.healthy() == before


def an_unknown_command_is_refused_for_good(harness: EngineHarness) -> None:
    """Another try would not help."""
    harness.apply(harness.web())
    with pytest.raises(EngineError) as raised:
        harness.command("makeCoffee")
    assert not raised.value.retry
    assert "makeCoffee" in str(raised.value)


def a_stopped_replica_is_replaced(harness: EngineHarness) -> None:
    """Another one takes its place, of the same version; a name that no replica has stops none."""
    harness.apply(harness.web())
    harness.healthy()
    names = {row.name for row in harness.rows()}
    with pytest.raises(EngineError) as raised:
        harness.command("stopReplica", replica="web-nix")
    assert not raised.value.retry
    if "stopReplica" in str(raised.value) or not names:
        return  # an engine without the command, or without replicas
    assert "has no replica web-nix" in str(raised.value)
    first, second = sorted(names)
    harness.command("stopReplica", replica=first)
    harness.until(lambda: len({row.name for row in harness.rows()} - {first}) == 2)
    harness.until(lambda: first not in {row.name for row in harness.rows()})
    assert second in {row.name for row in harness.rows()}
    assert {row.version for row in harness.rows()} == {1}


def replicas_are_shown_with_their_workload(harness: EngineHarness) -> None:
    """As many as there are, each once, with or without the engine; a deleted workload has none."""
    harness.apply(harness.web())
    harness.healthy()
    if isinstance(harness.reader, SupportsReplicaRows):
        rows = harness.rows()
        assert [(str(row.key), row.location, row.version) for row in rows] == [(WEB, "here", 1)] * 2
        assert len({row.name for row in rows}) == 2
        assert all(row.containers[0].name == "main" for row in rows)
    else:
        assert harness.reader.engine in explain_missing(harness.reader, "replicas")
    harness.delete()
    harness.until(lambda: not harness.rows())


def usage_is_unknown_or_a_number(harness: EngineHarness) -> None:
    """Processor time is that since the reader was last asked."""
    harness.apply(harness.web())
    harness.healthy()
    harness.rows()
    for row in harness.rows():
        assert row.cpu is None or row.cpu >= 0
        assert row.memory is None or row.memory > 0
        assert row.age >= 0


def logs_are_shown_by_stream_and_newest_first(harness: EngineHarness) -> None:
    """A selection takes streams by their labels; what comes later is shown once."""
    harness.apply(harness.web())
    harness.healthy()
    if not isinstance(harness.reader, SupportsLogs):
        assert harness.reader.engine in explain_missing(harness.reader, "logs")
        return
    for stream in harness.reader.log_streams():
        assert (stream.gvc, stream.workload, stream.container, stream.location) == ("shop", "web", "main", "here")
    everything = LogSelection(lambda labels: labels["workload"] == "web", lambda block, _: block.lines())
    search = harness.reader.search_logs(everything)
    lines = list(search.backward())
    assert [line.ms for line in lines] == sorted((line.ms for line in lines), reverse=True)
    assert list(search.more()) == list(search.more()) == []
    nothing = LogSelection(lambda labels: labels["workload"] == "api", lambda block, _: block.lines())
    assert list(harness.reader.search_logs(nothing).backward()) == []


def a_session_opens_or_there_is_a_reason(harness: EngineHarness) -> None:
    """In a container that runs, and in one that does not exist."""
    harness.apply(harness.web())
    harness.healthy()
    names = [row.name for row in harness.rows()] or ["web-0"]
    for name in (names[0], "nobody"):
        answer = harness.open_session(ExecTarget("here", Key.parse(WEB), name, "main"))
        assert answer == "0" or " " in answer


def no_snapshot_is_final_without_a_deleted_volume(harness: EngineHarness) -> None:
    """They are shown without any record."""
    harness.apply(harness.web())
    if isinstance(harness.reader, SupportsFinalSnapshots):
        assert list(harness.reader.final_snapshots()) == []


def a_sender_needs_the_token_of_its_workload(harness: EngineHarness) -> None:
    """A guess is no token, and this process is none of the workload."""
    harness.apply(harness.web())
    harness.healthy()
    guess = make_token("here", Key.parse(WEB))
    if isinstance(harness.reader, SupportsSenders):
        assert not harness.reader.has_token(Key.parse(WEB), guess)
        assert not harness.reader.is_sender(Key.parse(WEB), guess, os.getpid())


PROMISES = [
    observe_shows_what_was_performed,
    to_perform_twice_is_to_perform_once,
    to_observe_changes_nothing,
    a_delete_of_what_is_missing_is_fine,
    what_is_applied_and_what_is_observed_agree,
    more_replicas_are_no_new_version,
    a_restart_takes_over_what_there_is,
    an_unknown_command_is_refused_for_good,
    replicas_are_shown_with_their_workload,
    usage_is_unknown_or_a_number,
    logs_are_shown_by_stream_and_newest_first,
    a_session_opens_or_there_is_a_reason,
    no_snapshot_is_final_without_a_deleted_volume,
    a_sender_needs_the_token_of_its_workload,
]
"""Every engine keeps every promise."""
