"""Objects as a cluster has them, and what the platform shows of them: a folder for each case.

``live.yaml`` has the objects, ``status.json`` what comes of them. ``REWRITE_CASES=1`` writes the present results; read
them before you commit them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from reconciler.engines.kubernetes.status.events import index_events
from reconciler.engines.kubernetes.status.pods import PodContext
from reconciler.engines.kubernetes.status.replicas import ReplicaSource, list_rows
from reconciler.engines.kubernetes.status.rollout import LiveWorkload, read_pods
from reconciler.engines.kubernetes.status.volumes import LiveVolumes, find_claim_faults, volumeset_state
from reconciler.engines.kubernetes.status.workload import StatusContext, next_status_time, workload_status
from reconciler.engines.volumes import VolumeSetState
from reconciler.engines.workload.deployment import DeploymentTarget, Execution
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Specification
from reconciler.model.record import Health
from reconciler.render.layout import as_json
from reconciler.times import format_iso_time, parse_time
from tests.support.cases import CASES

FOLDER = CASES / "kubernetes-status"
FOLDERS = sorted(path.parent for path in FOLDER.glob("*/live.yaml"))


def case_of(folder: Path) -> dict[str, Any]:
    """The case in ``folder``."""
    value: dict[str, Any] = yaml.load((folder / "live.yaml").read_bytes(), yaml.CSafeLoader)
    return value


def live_of(case: dict[str, Any]) -> LiveWorkload:
    """The workload of a case."""
    manifest = msgspec.convert(case["workload"], Specification)
    key = Key(Kind.WORKLOAD, "shop", case["name"])
    spec = workload_spec(AppliedWorkload(key, "cluster", manifest, case["version"], "digest"), "hash")
    live = dict(case["live"])
    parts = {name: tuple(value) if isinstance(value, list) else value for name, value in live.items()}
    return LiveWorkload(spec, **parts)


def context_of(case: dict[str, Any]) -> StatusContext:
    """What is known besides the objects."""
    target = DeploymentTarget("cluster", "abcdefghijklm", 1, "example.net")
    more = dict(case.get("context", {}))
    past = tuple(msgspec.convert(more.pop("past", []), list[Execution]))
    limitations = tuple(more.pop("limitations", ()))
    return StatusContext(target, parse_time(case["now"]), past=past, limitations=limitations, **more)


def workload_result(case: dict[str, Any]) -> dict[str, Any]:
    """Health, deployment and replicas, as they are shown."""
    live, context = live_of(case), context_of(case)
    live_pods = read_pods(live, context.now)
    health, deployment = workload_status(live, live_pods, context)
    events = index_events(live.events)
    claims = find_claim_faults(live.claims, events)
    names = {container.name: container.name for container in live.spec.containers}
    pods = PodContext(context.now, names, events, claims)
    source = ReplicaSource(live.spec.key, "cluster", live.pods, tuple(case.get("metrics", ())))
    rows = [{**msgspec.to_builtins(row), "key": str(row.key)} for row in list_rows(source, pods)]
    due = next_status_time(live, live_pods, context)
    next_time = format_iso_time(due) if due is not None else ""
    return {"health": str(health), "next": next_time, "deployment": msgspec.to_builtins(deployment), "replicas": rows}


def volumes_result(case: dict[str, Any]) -> dict[str, Any]:
    """Health and state of a volume set."""
    live = dict(case["volumeset"])
    claimed = msgspec.convert(live.pop("claimed"), VolumeSetState)
    parts = {name: tuple(value) if isinstance(value, list) else value for name, value in live.items()}
    health, state = volumeset_state(LiveVolumes(claimed, **parts))
    return {"health": str(health), "state": msgspec.json.decode(state)}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_cluster_is_shown_as_its_case_expects(folder: Path) -> None:
    case = case_of(folder)
    result = volumes_result(case) if "volumeset" in case else workload_result(case)
    file = folder / "status.json"
    if os.environ.get("REWRITE_CASES"):
        file.write_bytes(as_json(result))
        return
    assert msgspec.json.decode(as_json(result)) == msgspec.json.decode(file.read_bytes())


def test_every_case_describes_what_it_shows() -> None:
    sentences = [case_of(folder)["description"] for folder in FOLDERS]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def test_every_health_of_a_workload_is_in_a_case() -> None:
    results = [msgspec.json.decode((folder / "status.json").read_bytes())["health"] for folder in FOLDERS]
    assert set(results) == set(Health) - {Health.RECORDED}
