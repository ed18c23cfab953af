"""What becomes of a replica: a case for each thing that is done to it or happens to it."""

from __future__ import annotations

from functools import reduce
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.decisions import transitions
from reconciler.engines.host.decisions.actions import Kill, RunPreStop, ScheduleRestart, Start, StopReplica, Terminate
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.probes.state import ProbeKind, Verdict
from reconciler.engines.host.runtimes.protocol import ContainerId
from tests.engines.host.decisions.reading import HOOK, PROBE, wanted_from
from tests.support.cases import cases

ACTS = {"start": Start, "runprestop": RunPreStop, "terminate": Terminate, "kill": Kill}


def happen(replica: Replica, event: str) -> Replica:
    """``SECONDS VERB CONTAINER REST`` as in the cases."""
    at, verb, name, rest = (*event.split(maxsplit=3), "", "")[:4]
    now = float(at)
    if verb == "end":
        return transitions.apply_action(replica, StopReplica(replica.name, name), now)
    if verb == "await":
        due, failures = rest.split()
        return transitions.apply_action(replica, ScheduleRestart(replica.name, name, float(due), int(failures)), now)
    if verb in ACTS:
        return transitions.apply_action(replica, ACTS[verb](replica.name, name), now)
    if verb == "ended":
        code, reason, message = (*rest.split(maxsplit=2), "")[:3]
        return transitions.container_exited(replica, name, now, int(code), reason, message)
    if verb in ("ready", "unready"):
        return transitions.readiness_changed(replica, name, verb == "ready", now, rest)
    if verb == "dead":
        return transitions.liveness_failed(replica, name, now, rest)
    return transitions.hook_finished(replica, name, "pre_stop" if verb == "pre_stop" else "post_start", rest, now)


@pytest.mark.parametrize("case", cases("host/changes.yaml"))
def test_an_event_changes_a_replica_as_its_case_expects(case: dict[str, Any]) -> None:
    wanted = wanted_from(case.get("wanted", {}))
    assert wanted is not None
    replica = transitions.new_replica(wanted, case.get("index", -1), "web-a", 0.0, "2026-01-01T00:00:00Z")
    after = reduce(happen, case["happens"], replica)
    shown = msgspec.to_builtins(after)
    main = next(each for each in shown["containers"] if each["name"] == "main")
    expected = {**case.get("replica", {}), **case.get("main", {})}
    assert {name: (main if name in case.get("main", {}) else shown)[name] for name in expected} == expected
    assert msgspec.json.decode(msgspec.json.encode(after), type=Replica) == after


@pytest.mark.parametrize("event", ["5 ended main 1 Error", "5 ready main", "5 dead main x", "5 post_start main x"])
def test_nothing_happens_to_what_does_not_run(event: str) -> None:
    wanted = wanted_from({"hooks": ["main"]})
    assert wanted is not None
    waiting = transitions.new_replica(wanted, -1, "web-a", 0.0, "")
    over = reduce(happen, ["1 start main", "2 ended main 0 Completed"], waiting)
    assert happen(waiting, event) == waiting
    assert happen(over, event) == over


@pytest.mark.parametrize("event", ["5 start main", "5 terminate main", "5 runprestop main", "5 end Deleted"])
def test_twice_is_once(event: str) -> None:
    wanted = wanted_from({"hooks": ["main"]})
    assert wanted is not None
    started = happen(transitions.new_replica(wanted, -1, "web-a", 0.0, ""), "1 start main")
    once = happen(started, event)
    assert happen(once, event.replace("5", "6", 1)) == once


def test_a_container_that_is_not_there_is_an_error() -> None:
    spec = wanted_from({})
    assert spec is not None
    with pytest.raises(KeyError):
        happen(transitions.new_replica(spec, -1, "web-a", 0.0, ""), "5 ready side")


def test_a_replica_keeps_what_it_was_made_from() -> None:
    spec = wanted_from({"hooks": ["main"], "probed": ["main"], "type": "stateful", "config_hash": "s"})
    assert spec is not None
    replica = transitions.new_replica(spec, 3, "web-3", 7.0, "2026-01-01T00:00:00Z")
    assert (replica.key, replica.version, replica.config_hash, replica.index) == (spec.key, 2, "s", 3)
    assert (replica.containers[0].wanted.pre_stop, replica.containers[0].wanted.readiness) == (HOOK, PROBE)
    assert happen(replica, "8 start main").containers[0].wanted == spec.containers[0]


@pytest.mark.parametrize("kind", list(ProbeKind))
def test_a_verdict_on_a_former_start_changes_nothing(kind: ProbeKind) -> None:
    spec = wanted_from({})
    assert spec is not None
    first = happen(transitions.new_replica(spec, -1, "web-a", 0.0, ""), "1 start main")
    again = reduce(happen, ["2 ended main 1 Error", "2 await main 3 1", "3 start main"], first)
    place = ContainerId(spec.key, "web-a", "main")
    assert transitions.apply_verdict(again, Verdict(place, 1.0, kind, False, "HTTP 503"), 4.0) == again
    changed = transitions.apply_verdict(again, Verdict(place, 3.0, kind, False, "HTTP 503"), 4.0)
    assert (changed.ready, changed.containers[0].message) == (False, f"the {kind} probe failed: HTTP 503")
