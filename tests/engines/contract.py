"""What every engine promises; a function for each promise, run over every engine there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.engines.protocol import Engine, Seen
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.record import Health
from reconciler.planning.plan import Action, Step
from tests.engines.plans import Bench, ends, plan, step
from tests.fakeclock import FakeClock

Factory = Callable[[Bench, Path], Engine]
"""Makes the engine of the location ``here``; the path is its own scratch directory."""

WEB = "workload/shop/web"
SPEC = {
    "kind": "workload",
    "name": "web",
    "spec": {
        "type": "standard",
        "containers": [{"name": "main", "image": "nginx:1", "ports": [{"number": 8080, "protocol": "http"}]}],
        "defaultOptions": {"autoscaling": {"minScale": 2, "maxScale": 3}},
    },
}


class Subject(Bench):
    """An engine under test at ``here``, behind an executor."""

    def __init__(self, factory: Factory, path: Path) -> None:
        super().__init__(path, FakeClock())
        self.engine = factory(self, path / "engine")
        self.engines["here"] = self.engine

    def web(self, action: Action = Action.CREATE, version: int = 1) -> Step:
        """A step on a workload."""
        return step(WEB, action=action, version=version, body=SPEC, engine=self.engine.name)

    def apply(self, *steps: Step) -> dict[str, str]:
        """Perform and record."""
        return ends(asyncio.run(self.run(plan(*steps))))

    def see(self) -> list[Seen]:
        """What the engine observes."""
        return asyncio.run(self.engine.observe())


def observe_shows_what_was_performed(subject: Subject) -> None:
    """And nothing else."""
    assert subject.see() == []
    assert subject.apply(subject.web()) == {WEB: "applied"}
    (seen,) = subject.see()
    assert (str(seen.key), seen.location, seen.version, seen.digest) == (WEB, "here", 1, "digest-1")
    assert seen.health is Health.HEALTHY
    subject.apply(subject.web(Action.UPDATE, 2))
    (seen,) = subject.see()
    assert (seen.version, seen.digest) == (2, "digest-2")


def to_perform_twice_is_to_perform_once(subject: Subject) -> None:
    """A replay after a crash must not make anything twice."""
    subject.apply(subject.web())
    for action, version in ((Action.CREATE, 1), (Action.UPDATE, 2), (Action.REPLACE, 3)):
        subject.apply(subject.web(action, version))
        once = subject.see()
        asyncio.run(subject.clock.advance(5))  # type: ignore[attr-defined]
        subject.apply(subject.web(action, version))
        assert subject.see() == once


def to_observe_changes_nothing(subject: Subject) -> None:
    """However often."""
    subject.apply(subject.web())
    assert subject.see() == subject.see()


def a_delete_of_what_is_missing_is_fine(subject: Subject) -> None:
    """So that a delete can be repeated."""
    subject.apply(subject.web())
    for _ in range(2):
        assert subject.apply(subject.web(Action.DELETE)) == {WEB: "applied"}
        assert subject.see() == []


def what_is_applied_and_what_is_observed_agree(subject: Subject) -> None:
    """The outcome carries what observe shows."""
    outcome = asyncio.run(subject.engine.perform(subject.web()))
    subject.apply(subject.web())
    assert outcome.seen in subject.see()


def an_unknown_command_is_refused_for_good(subject: Subject) -> None:
    """Another try would not help."""
    subject.apply(subject.web())
    with pytest.raises(EngineError) as raised:
        asyncio.run(subject.engine.command(Key.parse(WEB), "makeCoffee", {"location": "here"}))
    assert not raised.value.retry
    assert "makeCoffee" in str(raised.value)


PROMISES = [
    observe_shows_what_was_performed,
    to_perform_twice_is_to_perform_once,
    to_observe_changes_nothing,
    a_delete_of_what_is_missing_is_fine,
    what_is_applied_and_what_is_observed_agree,
    an_unknown_command_is_refused_for_good,
]
