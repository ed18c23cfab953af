"""What every engine promises; a function for each promise, run over every engine there is.

An engine plugs in with a Factory; what it makes is opened, used from one event loop and closed. Nothing here knows
what runs behind it: an engine that needs time is asked again until its step is done.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.clock import Clock
from reconciler.engines.protocol import Engine, Observation, SupportsLifecycle
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.planning.plan import Action, Step
from tests.support.plans import Bench, ends, plan, step

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


class Factory(msgspec.Struct, frozen=True):
    """Makes the engine of the location ``here``; the path is its own scratch directory, the same for each making."""

    make: Callable[[Bench, Path], Engine]
    clock: Callable[[], Clock]


class Subject(Bench):
    """An engine under test at ``here``, behind an executor, in one event loop."""

    def __init__(self, factory: Factory, path: Path) -> None:
        super().__init__(path, factory.clock())
        self._factory = factory
        self._path = path / "engine"
        self._loop = asyncio.Runner()
        self._begin()

    def _begin(self) -> None:
        self.engine = self._factory.make(self, self._path)
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
        body["spec"]["defaultOptions"]["autoscaling"] |= options
        made = step(WEB, action=action, version=version, body=body, engine=self.engine.name)
        return msgspec.structs.replace(made, digest=f"digest-{version}-{options}") if options else made

    def apply(self, *steps: Step) -> dict[str, str]:
        """Perform and record."""
        return ends(self._loop.run(self.run(plan(*steps))))

    def see(self) -> list[Observation]:
        """What the engine observes."""
        return self._loop.run(self.engine.observe())

    def command(self, name: str) -> None:
        """A command for the workload."""
        self._loop.run(self.engine.command(Key.parse(WEB), name, {"location": "here"}))

    def healthy(self) -> Observation:
        """The one workload, once it is as it was asked for."""
        return self.until(lambda: next((each for each in self.see() if each.health.is_good), None))

    def delete(self) -> None:
        """Delete the workload; asked again until it is gone."""
        self.until(lambda: self.apply(self.web(Action.DELETE)) == {WEB: "applied"})

    def until(self, found: Callable[[], Any]) -> Any:
        """What ``found`` returns once that is something."""
        end = time.monotonic() + PATIENCE
        while not (answer := found()):
            assert time.monotonic() < end, f"not within {PATIENCE:g} s: {self.see()}"
            self._loop.run(asyncio.sleep(0.02))
        return answer


@contextmanager
def subject_of(factory: Factory, path: Path) -> Iterator[Subject]:
    """A subject, closed in the end."""
    subject = Subject(factory, path)
    try:
        yield subject
    finally:
        subject.close()


def observe_shows_what_was_performed(subject: Subject) -> None:
    """And nothing else."""
    assert subject.see() == []
    assert subject.apply(subject.web()) == {WEB: "applied"}
    seen = subject.healthy()
    assert (str(seen.key), seen.location, seen.version, seen.digest) == (WEB, "here", 1, "digest-1")
    subject.apply(subject.web(Action.UPDATE, 2))
    seen = subject.healthy()
    assert (seen.version, seen.digest) == (2, "digest-2")


def to_perform_twice_is_to_perform_once(subject: Subject) -> None:
    """A replay after a crash must not make anything twice, nor restart anything."""
    for action, version in ((Action.CREATE, 1), (Action.UPDATE, 2), (Action.REPLACE, 3)):
        subject.until(
            lambda action=action, version=version: subject.apply(subject.web(action, version)) == {WEB: "applied"}
        )
        once = subject.healthy()
        subject.apply(subject.web(action, version))
        assert subject.healthy() == once
        assert len(subject.see()) == 1


def to_observe_changes_nothing(subject: Subject) -> None:
    """However often."""
    subject.apply(subject.web())
    subject.healthy()
    assert subject.see() == subject.see()


def a_delete_of_what_is_missing_is_fine(subject: Subject) -> None:
    """So that a delete can be repeated."""
    subject.apply(subject.web())
    for _ in range(2):
        subject.delete()
        assert subject.see() == []


def what_is_applied_and_what_is_observed_agree(subject: Subject) -> None:
    """The record carries what observe shows."""
    subject.apply(subject.web())
    seen = subject.healthy()
    (record,) = subject.records.applied.get(WEB)
    assert (record.digest, record.version) == (seen.digest, seen.version)


def more_replicas_are_no_new_version(subject: Subject) -> None:
    """A change of scale alone changes neither the version nor what runs (docs/platform/workload.md#versions)."""
    subject.apply(subject.web())
    before = subject.healthy()
    subject.apply(subject.web(Action.UPDATE, 1, minScale=3))
    after = subject.healthy()
    assert (after.version, after.digest) == (1, "digest-1-{'minScale': 3}")
    if after.state != b"{}":
        assert [replicas_in(one.state) for one in (before, after)] == [2, 3]


def replicas_in(state: bytes) -> int:
    """How many replicas a deployment shall have."""
    [version] = msgspec.json.decode(state)["status"]["versions"]
    return int(version["containers"]["main"]["resources"]["replicas"])


def a_restart_takes_over_what_there_is(subject: Subject) -> None:
    """Another engine on the same state shows the same, down to each replica."""
    subject.apply(subject.web())
    before = subject.healthy()
    subject.begin_anew()
    assert subject.healthy() == before


def an_unknown_command_is_refused_for_good(subject: Subject) -> None:
    """Another try would not help."""
    subject.apply(subject.web())
    with pytest.raises(EngineError) as raised:
        subject.command("makeCoffee")
    assert not raised.value.retry
    assert "makeCoffee" in str(raised.value)


PROMISES = [
    observe_shows_what_was_performed,
    to_perform_twice_is_to_perform_once,
    to_observe_changes_nothing,
    a_delete_of_what_is_missing_is_fine,
    what_is_applied_and_what_is_observed_agree,
    more_replicas_are_no_new_version,
    a_restart_takes_over_what_there_is,
    an_unknown_command_is_refused_for_good,
]
"""Every engine keeps every promise."""
