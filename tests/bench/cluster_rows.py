"""The engine for clusters on a real API server, beside `kubectl apply --server-side` of the same objects."""

from __future__ import annotations

import asyncio
import copy
import json
import resource
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import median

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.kubernetes.client.objects import ALWAYS_SERVED, POD
from reconciler.engines.kubernetes.engine import KubernetesEngine
from reconciler.planning.plan import Action, Step
from reconciler.settings import ClusterSettings, LocationSettings, Settings
from tests.bench.measure import Failed
from tests.bench.table import Row
from tests.bench.workspace import Workspace
from tests.engines.contract import SPEC
from tests.engines.test_contract import no_secret
from tests.kubernetes.cluster.control_plane import Cluster, running_cluster
from tests.support.plans import ExecutorHarness, plan, step

WORKLOADS = 2000
CHANGES = 20


def cluster(workspace: Workspace) -> Iterator[Row]:
    """The first apply, a change, a look at everything, and what kubectl takes for the same objects. No pod runs."""
    count = 100 if workspace.quick else WORKLOADS
    with running_cluster() as server:
        rows, objects = asyncio.run(_apply(server, workspace.scratch, count))
        began = time.perf_counter()
        server.kubectl("apply", "--server-side", "--filename", str(objects))
        kubectl = time.perf_counter() - began
        first = rows[0]
        yield Row(first.work, first.value, kubectl, note=f"{first.note}; kubectl {kubectl:.1f} s", cpu=first.cpu)
        yield from rows[1:]


async def _apply(server: Cluster, scratch: Path, count: int) -> tuple[list[Row], Path]:
    """The rows of the engine, and a file with the objects that it applied, for another namespace."""
    folder = scratch / "cluster"
    folder.mkdir()
    harness = ExecutorHarness(folder, SystemClock(), parallel=64)
    bound = ClusterSettings(kubeconfig=server.kubeconfig, requests=10_000)
    settings = Settings("acme", (), folder, locations={"here": LocationSettings("kubernetes", cluster=bound)})
    records = LocationRecords(harness.records, "here")
    engine = KubernetesEngine(EngineContext(records, settings, harness.clock, no_secret))
    harness.engines["here"] = engine
    await engine.open()
    try:
        rows = [row async for row in _measure(harness, engine, count)]
        objects = scratch / "objects.json"
        objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _list_objects(engine)}))
    finally:
        await engine.close()
        harness.records.close()
    return rows, objects


async def _measure(harness: ExecutorHarness, engine: KubernetesEngine, count: int) -> AsyncIterator[Row]:
    before, began = _cpu_seconds(), time.perf_counter()
    outcomes = await harness.run(plan(*(_make_step(number) for number in range(count))))
    failed = [outcome for outcome in outcomes if outcome.result != "applied"]
    if failed:
        raise Failed(f"{len(failed)} of {count} workloads are not applied: {failed[0].message}")
    seconds = time.perf_counter() - began
    objects = len(_list_objects(engine))
    name = f"{count:,} workloads on a cluster"
    yield Row(f"{name}: first apply", seconds, 0, note=f"{objects:,} objects", cpu=_cpu_seconds() - before)
    taken = []
    for number in range(CHANGES):
        began = time.perf_counter()
        await harness.run(plan(_make_step(number, version=2)))
        taken.append(time.perf_counter() - began)
    yield Row(
        f"{name}: one change to applied, p50", median(taken), 0.15, note=f"the slowest {max(taken) * 1000:.0f} ms"
    )
    before, began = _cpu_seconds(), time.perf_counter()
    await engine.observe()
    yield Row(f"{name}: observe all", time.perf_counter() - began, 0, cpu=_cpu_seconds() - before)
    yield Row("  resident at most", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 400, "MB")


def _make_step(number: int, version: int = 1) -> Step:
    """The step that creates a workload, or gives it another image."""
    body = copy.deepcopy(SPEC)
    body["name"] = f"web{number}"
    body["spec"]["containers"][0]["image"] = f"nginx:{version}"
    action = Action.CREATE if version == 1 else Action.UPDATE
    return step(f"workload/shop/web{number}", action=action, version=version, body=body, engine="kubernetes")


def _list_objects(engine: KubernetesEngine) -> list[dict[str, object]]:
    """What the engine has applied, as objects of a namespace of their own that no daemon owns."""
    kinds = [kind for kind in ALWAYS_SERVED if kind is not POD]
    items = [item.decode() for kind in kinds for item in engine.list_mirrored(kind)]
    return [_copy_object(item) for item in sorted(items, key=lambda item: item["kind"] != "Namespace")]


def _copy_object(item: dict[str, object]) -> dict[str, object]:
    copied = json.loads(json.dumps(item).replace('"shop"', '"copy"'))
    metadata = copied["metadata"]
    copied["metadata"] = {name: metadata[name] for name in ("name", "namespace", "labels") if name in metadata}
    copied["metadata"]["labels"].pop("reconciler.dev/instance", None)
    copied.pop("status", None)
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "finalizers"):
        copied.get("spec", {}).pop(name, None)
    return copied


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
