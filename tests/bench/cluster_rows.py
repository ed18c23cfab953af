"""A daemon for many workloads on a real API server, beside `kubectl apply --server-side` of the same objects."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pygit2

from reconciler.engines.kubernetes.client.http import HttpPool
from reconciler.engines.kubernetes.client.objects import ALWAYS_SERVED, POD, ObjectKind
from tests.bench.host_sandbox import PATIENCE, used
from tests.bench.measure import BIN, Measured, run
from tests.bench.table import Row
from tests.bench.workspace import Workspace
from tests.engines.contract import SPEC
from tests.kubernetes.cluster.client import read_kubeconfig
from tests.kubernetes.cluster.control_plane import Cluster, running_cluster
from tests.support.sandbox import DaemonProcess, DaemonSandbox, eventually

WORKLOADS = 2000
"""Of seven objects each."""
CHANGES = 20
RATE = 100
"""Changes of pods a second."""
USER = "daemon"
GVC = {"kind": "gvc", "name": "shop", "spec": {"staticPlacement": {"locationLinks": ["//location/here"]}}}
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER], "verbs": ["list"]}, {"level": "None"}],
}
_MERGE = {"Content-Type": "application/strategic-merge-patch+json"}


class ClusterBench:
    """A control plane that notes the lists of the daemon, and ``count`` workloads in a repository."""

    def __init__(self, server: Cluster, folder: Path, count: int) -> None:
        self.server = server
        self.count = count
        self._lists = folder / "lists"
        bound = {"kubeconfig": str(server.kubeconfig_of(USER, "system:masters"))}
        files = {"gvc.yaml": json.dumps(GVC)} | {_name_file(number): _describe(number) for number in range(count)}
        self.sandbox = DaemonSandbox(
            folder / "site", files, locations={"here": {"engine": "kubernetes", "cluster": bound}}
        )
        self.sandbox.configure(sources=[self.sandbox.source(interval="1h", status={"interval": "10s"})])

    def apply(self) -> Measured:
        """Apply all, as a whole process."""
        return run([BIN / "reconciler", "apply"], self.sandbox.environ)

    def list_objects(self) -> list[dict[str, Any]]:
        """What was applied, as objects for a namespace that no daemon owns."""
        kinds = [kind for kind in ALWAYS_SERVED if kind is not POD]
        items = [item for kind in kinds for item in self._list(kind)]
        return [_copy_object(item) for item in sorted(items, key=lambda item: item["kind"] != "Namespace")]

    def _list(self, kind: ObjectKind) -> Iterator[dict[str, Any]]:
        answer = self.server.api.get(kind.path(), params={"labelSelector": "reconciler.dev/location=here"})
        for item in answer.raise_for_status().json()["items"]:
            yield {"apiVersion": kind.api_version, "kind": kind.kind, **item}

    def list_pods(self, first: int) -> list[str]:
        """The names of the pods of all workloads from the one with the number ``first`` on."""
        others = tuple(f"web{number}-" for number in range(first))
        items = self.server.api.get(POD.path("shop")).raise_for_status().json()["items"]
        return [name for item in items if not (name := item["metadata"]["name"]).startswith(others)]

    def commit(self, files: dict[str, str]) -> float:
        """Commit ``files`` and return how long it took until all was applied and recorded, in seconds."""
        repo = self.sandbox.repo
        commit = repo.commit(files, branch="next", parent=repo.git("rev-parse", "main"))
        time.sleep(1.0)  # the daemon notices the other branch too, and must be idle again
        began = time.perf_counter()
        pygit2.Repository(str(repo.path)).references["refs/heads/main"].set_target(commit)
        while not self.sandbox.applied(commit):
            time.sleep(0.001)
        return time.perf_counter() - began

    def take_lists(self) -> Counter[str]:
        """How often the daemon has listed each kind since the last call."""
        lines = self._lists.read_text().splitlines() if self._lists.exists() else []
        self._lists.write_text("")
        return Counter(json.loads(line)["objectRef"]["resource"] for line in lines)


def cluster(workspace: Workspace) -> Iterator[Row]:
    """The first apply beside that of kubectl, a change, nothing to do, and pods that change. No pod really runs."""
    with _installed(workspace) as (bench, first):
        count, folder = bench.count, workspace.scratch / "cluster"
        objects = bench.list_objects()
        bench.take_lists()
        with bench.sandbox.daemon(fresh=True) as daemon:
            yield from _measure_changes(bench, daemon)
            yield from _measure_pods(bench, daemon, CHANGES)
    # On a cluster of its own, which does not work on the pods of the other one.
    with running_cluster() as server:
        kubectl = _apply_by_kubectl(server, folder, objects)
    name = f"{count:,} workloads on a cluster: first apply"
    note = f"{len(objects):,} objects; CPU {first.cpu:.1f} s; kubectl {kubectl.wall:.1f} s, CPU {kubectl.cpu:.1f} s"
    yield Row(name, first.wall, 0, note=note)
    yield Row("  against kubectl apply --server-side", first.wall / kubectl.wall, 1, "times")
    yield Row("  resident at most", first.peak, 400, "MB")


def pods(workspace: Workspace) -> Iterator[Row]:
    """Of `cluster`, only what pods that change cost, and what nothing costs: with `--workloads` in a minute or two."""
    with _installed(workspace) as (bench, _), bench.sandbox.daemon(fresh=True) as daemon:
        eventually(lambda: daemon.logged("reconciled"), "the first run ends", PATIENCE)
        eventually(lambda: len(bench.list_pods(0)) >= bench.count, "its pods are there", PATIENCE)
        _report_pods(bench, bench.list_pods(0))
        pid, seconds = daemon.process.pid, 2.0 if workspace.quick else 60.0
        # That all are ready is in the status of each, which takes longer than the reports.
        eventually(lambda: _is_at_rest(pid), "the status is written", PATIENCE)
        yield from _measure_pods(bench, daemon, 0)
        before = used(pid).cpu
        time.sleep(seconds)
        share = 100 * (used(pid).cpu - before) / seconds
        yield Row(f"{bench.count:,} workloads on a cluster: nothing changes: of one core", share, 0, "%")


def _is_at_rest(pid: int) -> bool:
    """Whether a process does next to nothing for some seconds."""
    before = used(pid).cpu
    time.sleep(5.0)
    return used(pid).cpu - before < 0.1


@contextmanager
def _installed(workspace: Workspace) -> Iterator[tuple[ClusterBench, Measured]]:
    """All workloads on a cluster, with what their first apply took."""
    count = workspace.workloads or (100 if workspace.quick else WORKLOADS)
    folder = workspace.scratch / "cluster"
    folder.mkdir(exist_ok=True)
    policy = folder / "policy.json"
    policy.write_text(json.dumps(AUDIT))
    audit = [f"--audit-policy-file={policy}", f"--audit-log-path={folder}/lists"]
    with running_cluster(kube_apiserver=audit) as server:
        bench = ClusterBench(server, folder, count)
        yield bench, bench.apply()


def _apply_by_kubectl(server: Cluster, folder: Path, objects: list[dict[str, Any]]) -> Measured:
    file = folder / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return run([*server.kubectl_command(), "apply", "--server-side", "--filename", file])


def _measure_changes(bench: ClusterBench, daemon: DaemonProcess) -> Iterator[Row]:
    name, pid = f"{bench.count:,} workloads on a cluster", daemon.process.pid
    eventually(lambda: daemon.logged("reconciled"), "the first run ends", PATIENCE)
    yield Row(f"{name}: lists at a start", bench.take_lists().total(), 0, "", note="pages of 500 objects")
    bench.commit({"README.md": "nothing to do"})
    _report_pods(bench, bench.list_pods(0))
    time.sleep(10.0)
    bench.take_lists()
    for number in range(5):
        bench.commit({"README.md": str(number)})
    seconds = [line["seconds"] for line in daemon.logged("reconciled")][-5:]
    lists = bench.take_lists()
    yield Row(f"{name}: nothing to do", median(seconds), 0.05, note=f"{lists.total()} lists")
    before = used(pid).cpu
    taken = [bench.commit({_name_file(number): _describe(number, "nginx:2")}) for number in range(CHANGES)]
    cpu = (used(pid).cpu - before) / CHANGES
    yield Row(
        f"{name}: one change to recorded, p50", median(taken), 0.15, note=f"the slowest {max(taken):.3f} s", cpu=cpu
    )


def _measure_pods(bench: ClusterBench, daemon: DaemonProcess, first: int) -> Iterator[Row]:
    """What changes of pods cost, of all workloads from the one with the number ``first`` on."""
    name, pid, pods = f"{bench.count:,} workloads on a cluster", daemon.process.pid, bench.list_pods(first)
    reports = [pods[number % len(pods)] for number in range(10 * RATE)]
    before, began = used(pid).cpu, time.perf_counter()
    _report_pods(bench, reports)
    rate = len(reports) / (time.perf_counter() - began)
    time.sleep(1.0)
    share = (used(pid).cpu - before) / len(reports)
    note = f"measured at {rate:.0f} a second"
    yield Row(f"{name}: {RATE} changes of pods a second: of one core", 100 * share * RATE, 10, "%", note=note)
    yield Row("  resident", used(pid).resident, 400, "MB")


def _report_pods(bench: ClusterBench, pods: list[str]) -> None:
    """Report ``pods`` as ready, as kubelets do, each with another id of its container."""
    first = int(time.monotonic() * 1000)
    asyncio.run(_send_reports(bench.server, [(pod, first + number) for number, pod in enumerate(pods)]))


async def _send_reports(server: Cluster, reports: list[tuple[str, int]]) -> None:
    url, trust = read_kubeconfig(server.kubeconfig)
    pool, slots, began = HttpPool(url, trust, None, 60.0), asyncio.Semaphore(8), time.perf_counter()

    async def send(pod: str, mark: int) -> None:
        path = f"/api/v1/namespaces/shop/pods/{pod}/status"
        async with slots:
            answer = await pool.request("PATCH", path, headers=_MERGE, content=json.dumps(_report(mark)).encode())
        assert answer.status == 200, answer.content[:500]

    sending = []
    for number, report in enumerate(reports):
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        sending.append(asyncio.create_task(send(*report)))
    await asyncio.gather(*sending)
    pool.close()


def _report(mark: int) -> dict[str, Any]:
    since = "2026-01-01T00:00:00Z"
    container = {
        "name": "main",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "nginx:1",
        "imageID": "nginx",
        "containerID": f"containerd://{mark}",
        "state": {"running": {"startedAt": since}},
    }
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    return {"status": {"phase": "Running", "conditions": [ready], "containerStatuses": [container]}}


def _name_file(number: int) -> str:
    return f"shop/web{number}.yaml"


def _describe(number: int, image: str = "nginx:1") -> str:
    """A workload of the shop."""
    body = copy.deepcopy(SPEC)
    body |= {"name": f"web{number}", "gvc": "shop"}
    body["spec"]["containers"][0]["image"] = image
    return json.dumps(body) + "\n"


def _copy_object(item: dict[str, Any]) -> dict[str, Any]:
    copied = json.loads(json.dumps(item).replace('"shop"', '"copy"'))
    metadata = copied["metadata"]
    copied["metadata"] = {name: metadata[name] for name in ("name", "namespace", "labels") if name in metadata}
    copied["metadata"]["labels"].pop("reconciler.dev/instance", None)
    copied.pop("status", None)
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "finalizers"):
        copied.get("spec", {}).pop(name, None)
    return copied
