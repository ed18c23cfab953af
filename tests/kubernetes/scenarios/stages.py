"""Where scenarios happen: one engine with its programs, behind a daemon of its own. A new engine joins as a stage."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.definitions import SNAPSHOTS
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.metrics import VERSION, register_metrics
from tests.kubernetes.cluster.objects import STORAGE_CLASS
from tests.kubernetes.cluster.pod import PROBE_WORDS
from tests.kubernetes.cluster.scripts import Script
from tests.support.host_sandbox import GVC, HostSandbox, host_sandbox, shared_folder
from tests.support.sandbox import DaemonSandbox

PROGRAM = Path(__file__).with_name("replica.py").read_text()
SPACE = "shop"
DRIFT = {"interval": "300ms"}
PRUNE = {"percent": 100}
START_SECONDS = 0.6
"""How long containers of clusters are not ready at first, so that people see it."""
STORAGE_CLASSES = ("general-purpose-ssd-ext4", "general-purpose-ssd-ext4-command")


class Stage(Protocol):
    """One engine and the programs that it runs."""

    sandbox: DaemonSandbox

    def adapt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The manifest as this engine can run it: with a program that does what the scenario says."""
        ...

    def behave(self, workload: str, script: dict[str, Any]) -> None:
        """Let the replicas of a workload follow ``script`` from now on, the fields of ``Script``."""
        ...

    def hang(self, workload: str) -> None:
        """Let the liveness probes of the replicas that run now fail."""
        ...

    def exit(self, workload: str, code: int) -> None:
        """Let the replicas that run now end by themselves."""
        ...

    def stop(self, workload: str) -> None:
        """End the first replica from outside."""
        ...

    def use(self, workload: str, millicores: int) -> None:
        """Let each replica of a workload use so much CPU."""
        ...

    def run_due(self, workloads: list[str]) -> None:
        """Let the time of cron workloads come, or return if it comes by itself."""
        ...


def seconds_to_minute() -> float:
    """The seconds to the next full minute, when schedules are due."""
    return 60.0 - time.time() % 60.0


def make_secrets(path: Path) -> dict[str, str]:
    """The settings of a new directory of secrets below ``path``."""
    folder = path / "secrets"
    folder.mkdir(mode=0o700, parents=True)
    return {"directory": str(folder)}


class HostStage:
    """Processes on this machine."""

    def __init__(self, sandbox: HostSandbox) -> None:
        self.sandbox: HostSandbox = sandbox
        self._folder = shared_folder(sandbox.path)
        self._words: dict[str, dict[str, str]] = {}

    def adapt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """With the program of replicas as the command of each container whose own is ``replica``."""
        adapted = deepcopy(manifest)
        for container in adapted.get("spec", {}).get("containers", ()):
            if container.get("command") == "replica":
                container["command"] = "python3"
                container["args"] = ["-I", "-S", "-c", PROGRAM, str(self._folder / adapted["name"])]
        return adapted

    def behave(self, workload: str, script: dict[str, Any]) -> None:
        """Write the file that the programs read."""
        self._write(workload, {field: str(value).lower() for field, value in script.items()})

    def hang(self, workload: str) -> None:
        """Let those fail that began before now."""
        self._write(workload, {"hang": str(time.monotonic())})

    def exit(self, workload: str, code: int) -> None:
        """Let those end that began before now."""
        self._write(workload, {"end": f"{code}@{time.monotonic()}"})

    def stop(self, workload: str) -> None:
        """Kill one process."""
        name = min(self.sandbox.replicas(workload))
        os.kill(min(pid for pid in self.sandbox.programs() if name in read_environment(pid)), signal.SIGKILL)

    def use(self, workload: str, millicores: int) -> None:
        """Let the programs compute."""
        self._write(workload, {"use": f"{millicores / 1000:g}"})

    def run_due(self, workloads: list[str]) -> None:
        """It comes by itself."""

    def _write(self, workload: str, words: dict[str, str]) -> None:
        words = self._words[workload] = {**self._words.get(workload, {}), **words}
        fresh = self._folder / f"{workload}.new"
        fresh.write_text(" ".join(f"{name}={value}" for name, value in words.items()))
        fresh.chmod(0o644)
        fresh.rename(self._folder / workload)


def read_environment(pid: int) -> str:
    """The environment of a process."""
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")


@contextmanager
def host_stage(path: Path) -> Iterator[HostStage]:
    """A stage of this machine."""
    settings = {
        "host": {"terminationScale": 0.01},
        "drift": DRIFT,
        "prune": PRUNE,
        "secrets": make_secrets(path / "shop"),
    }
    with host_sandbox(path / "shop", {}, **settings) as sandbox:
        yield HostStage(sandbox)


class FakeStage:
    """Pods of the fake cluster, whose kubelet has no time: a script says what its pods are like."""

    def __init__(self, sandbox: DaemonSandbox, server: FakeApiServer) -> None:
        self.sandbox = sandbox
        self._server = server

    def adapt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """As it is."""
        return manifest

    def behave(self, workload: str, script: dict[str, Any]) -> None:
        """Set the script of the pods."""
        self._server.pods.follow(f"{SPACE}/{workload}-*", msgspec.convert(script, Script, strict=False))
        self._server.converge()

    def hang(self, workload: str) -> None:
        """The kubelet starts the containers again."""
        self._restart(workload, 0, "Unhealthy", f"Liveness probe failed: {PROBE_WORDS}")

    def exit(self, workload: str, code: int) -> None:
        """The kubelet starts the containers again, but for executions."""
        self._restart(workload, code, "", "")

    def _restart(self, workload: str, code: int, reason: str, message: str) -> None:
        for pod in self._server.objects("Pod", SPACE):
            name = pod["metadata"]["name"]
            if name.startswith(f"{workload}-") and pod["spec"]["restartPolicy"] == "Always":
                self._server.restart_containers(pod, code, reason, message)
            elif name.startswith(f"{workload}-"):
                self._server.pods.follow(f"{SPACE}/{name}", Script(exit=code))
                self._server.converge()

    def stop(self, workload: str) -> None:
        """Delete a pod."""
        pods = [pod["metadata"]["name"] for pod in self._server.objects("Pod", SPACE)]
        self._server.delete("Pod", min(name for name in pods if name.startswith(f"{workload}-")), SPACE)

    def use(self, workload: str, millicores: int) -> None:
        """Let the autoscaler of the workload see it."""
        self._server.controllers.autoscalers.usage[f"{SPACE}/{workload}"] = millicores

    def run_due(self, workloads: list[str]) -> None:
        """At the next full minute, let the CronJobs do what their policies say."""
        if workloads:
            time.sleep(seconds_to_minute())
        for workload in workloads:
            self._server.run_cron_job(SPACE, workload)
        self._server.converge()


@contextmanager
def fake_stage(path: Path, *, measured: bool = False) -> Iterator[FakeStage]:
    """A stage of a fake cluster, which measures what pods use if it is ``measured``."""
    with fake_api_server(path / "cluster") as server:
        server.install("VolumeSnapshot", *(["PodMetrics"] if measured else []))
        for name in STORAGE_CLASSES:
            server.create({**STORAGE_CLASS, "metadata": {"name": name}})
        server.controllers.kubelet.takes_snapshots = True
        server.run_controllers()
        server.pods.start_seconds = START_SECONDS
        server.pods.logs_start = True
        with converging(server):
            yield FakeStage(cluster_sandbox(path / "shop", server.kubeconfig), server)


@contextmanager
def converging(server: FakeApiServer) -> Iterator[None]:
    """Let the controllers act also when only time passes."""
    over = threading.Event()

    def act() -> None:
        while not over.wait(0.2):
            server.converge()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def cluster_sandbox(path: Path, kubeconfig: Path, **cluster: Any) -> DaemonSandbox:
    """A sandbox whose location is a cluster."""
    bound = {"engine": "kubernetes", "cluster": {"kubeconfig": str(kubeconfig), **cluster}}
    sandbox = DaemonSandbox(path, {"shop/gvc.yaml": GVC})
    sandbox.configure(locations={"here": bound}, drift=DRIFT, prune=PRUNE, secrets=make_secrets(path))
    return sandbox


class ClusterStage:
    """Pods of a real control plane, whose containers follow scripts."""

    def __init__(self, sandbox: DaemonSandbox, cluster: Cluster, kubelet: Kubelet, space: str) -> None:
        self.sandbox = sandbox
        self._cluster = cluster
        self._kubelet = kubelet
        self._space = space

    def adapt(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """As it is."""
        return manifest

    def behave(self, workload: str, script: dict[str, Any]) -> None:
        """Set the script of the pods."""
        self._kubelet.set_script(f"{self._space}/{workload}-*", msgspec.convert(script, Script, strict=False))

    def hang(self, workload: str) -> None:
        """Let the kubelet end the containers."""
        for name in self._pods(workload):
            self._kubelet.fail_liveness(self._space, name)

    def exit(self, workload: str, code: int) -> None:
        """Let the containers end."""
        for name in self._pods(workload):
            self._kubelet.end_container(self._space, name, code)

    def stop(self, workload: str) -> None:
        """Delete a pod."""
        path = f"/api/v1/namespaces/{self._space}/pods/{min(self._pods(workload))}"
        self._cluster.api.delete(path).raise_for_status()

    def use(self, workload: str, millicores: int) -> None:
        """Let the kubelet report it."""
        self._kubelet.usage[f"{self._space}/{workload}-*"] = (f"{millicores}m", "10Mi")

    def run_due(self, workloads: list[str]) -> None:
        """It comes by itself."""

    def _pods(self, workload: str) -> list[str]:
        items = self._cluster.api.get(f"/api/v1/namespaces/{self._space}/pods").raise_for_status().json()["items"]
        return [pod["metadata"]["name"] for pod in items if pod["metadata"]["name"].startswith(f"{workload}-")]


@contextmanager
def cluster_stage(
    path: Path, cluster: Cluster, kubelet: Kubelet, prefix: str, *, measured: bool = False
) -> Iterator[ClusterStage]:
    """A stage of a real cluster, in a namespace of its own."""
    cluster.install(*SNAPSHOTS)
    if measured:
        cluster.apply(*register_metrics(kubelet.port))
        cluster.wait_for(lambda: cluster.api.get(f"/apis/{VERSION}").is_success, "metrics are served", seconds=90.0)
    cluster.apply(*({**STORAGE_CLASS, "metadata": {"name": name}} for name in STORAGE_CLASSES))
    sandbox = cluster_sandbox(path / "shop", cluster.kubeconfig, namespacePrefix=prefix, instance=prefix.strip("-"))
    kubelet.start_seconds = START_SECONDS
    try:
        yield ClusterStage(sandbox, cluster, kubelet, f"{prefix}{SPACE}")
    finally:
        kubelet.start_seconds = 0.0
        cluster.api.delete(f"/api/v1/namespaces/{prefix}{SPACE}")
