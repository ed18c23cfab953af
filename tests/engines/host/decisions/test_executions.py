"""When executions of cron workloads are due, and how they end: a case for each transition."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.engines.host.decisions.cron import add_due
from reconciler.engines.host.decisions.execution_log import ExecutionEntry, ExecutionLog
from reconciler.engines.host.decisions.execution_results import execution_conditions, record_results
from reconciler.engines.host.decisions.replica import Ended, ExecutionRun, Phase, Replica, ReplicaContainer
from reconciler.engines.workload.spec import ImageFault, Type, WorkloadSpec
from reconciler.engines.workload.status import ExecutionState
from reconciler.engines.workload_commands import ContainerOverride
from reconciler.model.kinds.workload import Job, Options
from reconciler.times import parse_time
from tests.engines.host.decisions.reading import KEY
from tests.support.cases import cases


def seconds(text: str) -> float:
    """``05:00``, ``05:00:10`` or with a date, in seconds since the epoch."""
    at = text if "T" in text else f"2026-01-01T{text}"
    return parse_time(f"{at}:00Z" if at.count(":") == 1 else f"{at}Z")


def container(name: str, text: str, tries: int = 0) -> ReplicaContainer:
    """``PHASE CODE REASON MESSAGE``."""
    phase, code, reason, message = (*text.split(maxsplit=3), "", "", "")[:4]
    last = Ended(int(code), 5.0, reason, message) if code else None
    return ReplicaContainer(name, Phase(phase), started=1.0, last=last, failures=tries)


@pytest.mark.parametrize("case", cases("host/executions.yaml"))
def test_an_execution_ends_as_its_case_expects(case: dict[str, Any]) -> None:
    entry = ExecutionEntry(
        "web-1",
        1,
        case.get("started", 100.0),
        boot=case.get("boot", "boot"),
        overrides=(ContainerOverride("main", args=("secret",)),),
    )
    containers = tuple(container(name, text, case.get("tries", 0)) for name, text in case.get("containers", {}).items())
    replica = Replica("web-1", KEY, 1, "", 0.0, containers, run=ExecutionRun(restart=case.get("restart", False)))
    if "reason" in case:
        replica = msgspec.structs.replace(replica, ending=4.0, reason=case["reason"])
    log = ExecutionLog(failures=case.get("failures", 0), entries=(entry,))
    fault = ImageFault(*case["fault"]) if "fault" in case else None
    log, events = record_results(log, 5, [replica] if containers else [], 160.0, "boot", fault)
    [execution_entry] = log.entries
    assert {
        "state": execution_entry.state,
        "reason": execution_entry.reason,
        "message": execution_entry.message,
    } == case["result"]
    assert [str(reason) for reason, _ in events] == case.get("events", [])
    assert [f"{each.type}: {each.message}" for each in execution_conditions(log)] == case.get("conditions", [])
    active = execution_entry.state is ExecutionState.ACTIVE
    assert (execution_entry.completed, bool(execution_entry.overrides)) == ((0.0, True) if active else (160.0, False))


@pytest.mark.parametrize("case", cases("host/due.yaml"))
def test_what_is_due_is_what_its_case_expects(case: dict[str, Any]) -> None:
    job, suspended = Job(case["schedule"], case.get("policy", "Forbid")), case.get("suspended", False)
    spec = WorkloadSpec(KEY, Type.CRON, 1, "d", "s", 0, (), Options(), suspended=suspended, job=job)
    was = "" if suspended else case.get("was", job.schedule)
    entries = tuple(ExecutionEntry(name, 1, seconds("00:00"), boot="boot") for name in case.get("active", []))
    checked = int(seconds(case["checked"]) // 60)
    log = ExecutionLog(was, checked, case.get("skipped", 0), case.get("replaced", 0), entries=entries)
    replicas = [
        Replica(name, KEY, 1, "", 0.0, tuple(container(value, text) for value, text in found.items()))
        for name, found in case.get("replicas", {}).items()
    ]
    log, events = add_due(log, spec, seconds(case["now"]), "boot", replicas)
    started = [f"web-{int(seconds(case['starts']) // 60)}"] if "starts" in case else []
    removed = case.get("removed", [])
    expected = [value for value in case.get("active", []) if value not in removed] + started
    assert [execution_entry.name for execution_entry in log.active] == expected
    assert [entry.name for entry in log.entries if entry.state is ExecutionState.REMOVED] == removed
    assert [f"{reason} {message}" for reason, message in events] == case.get("events", [])
    assert [str(execution_condition.type) for execution_condition in execution_conditions(log)] == case.get(
        "conditions", []
    )
    assert msgspec.json.decode(msgspec.json.encode(log), type=ExecutionLog) == log
    assert add_due(log, spec, seconds(case["now"]), "boot") == (log, [])
