"""Nodes whose pods run nowhere: what kubelets report, in one event loop and one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx2

from tests.kubernetes.cluster.addresses import LOOPBACK, node_address
from tests.kubernetes.cluster.client import Client, Object
from tests.kubernetes.cluster.pod import PROBE_WORDS, Pod, format_now
from tests.kubernetes.cluster.scripts import Script, Scripts
from tests.kubernetes.cluster.streams import StreamServer
from tests.kubernetes.cluster.volumes import Provisioner
from tests.kubernetes.cluster.webhooks import Review

LEASE_SECONDS = 10.0
NO_PORT = 1
"""Where nobody listens."""
FIRST_ADDRESS = IPv4Address("10.244.0.1")
CAPACITY = {"cpu": "1000", "memory": "1000Gi", "ephemeral-storage": "1000Gi", "pods": "10000"}

T = TypeVar("T")


class Kubelet:
    """The kubelets of some nodes, and the provisioner of volumes, until ``stop``."""

    def __init__(self, kubeconfig: Path, nodes: tuple[str, ...] = ("node-a", "node-b"), pace: float = 0.02) -> None:
        self.pace = pace
        self.start_seconds = 0.0
        self.scripts = Scripts()
        self.nodes = nodes
        self.pods: dict[str, Pod] = {}
        """By uid."""
        self.used_bytes: dict[str, int] = {}
        """What is measured of claims, by ``NAMESPACE/NAME``."""
        self.usage: dict[str, tuple[str, str]] = {}
        """Glob of ``NAMESPACE/NAME`` → CPU and memory that each container uses, as quantities."""
        self.webhooks: dict[str, Review] = {}
        """What ``describe_webhook`` registers, by name."""
        self.webhook_delays: dict[str, float] = {}
        """Seconds that a webhook waits before it answers."""
        self.faults: list[BaseException] = []
        self.port = 0
        """Where it answers webhooks and metrics, on loopback, once it is started."""
        self.address = LOOPBACK
        """Of all nodes, once it is started."""
        self.provisioner: Provisioner
        """Of volumes, once it is started."""
        self._ports: dict[str, int] = {}
        self._silent: set[str] = set()
        self._kubeconfig = kubeconfig
        self._addresses = iter(range(1_000_000))
        self._ended = asyncio.Event()
        self._unready: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, name="kubelet", daemon=True)

    def start(self) -> None:
        """Register the nodes, and return once they are ready."""
        self._thread.start()
        self._ready.result(60.0)

    def stop(self) -> None:
        """End it; the nodes stay registered."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def set_script(self, pod: str, script: Script, container: str = "*") -> None:
        """Let the pods like ``NAMESPACE/NAME`` (a glob) follow ``script`` from now on."""
        self._call(self._set_script, pod, script, container)

    def end_container(self, namespace: str, pod: str, code: int, reason: str = "", container: str = "") -> None:
        """End a container now, the first unless it is named."""
        self._call(self._end_container, namespace, pod, container, (code, reason))

    def fail_liveness(self, namespace: str, pod: str) -> None:
        """Let the liveness probe of the first container fail: it ends, and starts again."""
        self._run(self._fail_liveness(self._find(namespace, pod)))

    async def _fail_liveness(self, pod: Pod) -> None:
        container = pod.containers[0]
        count = (container.spec.get("livenessProbe") or {}).get("failureThreshold", 3)
        await self.record(pod.item, "Unhealthy", f"Liveness probe failed: {PROBE_WORDS}", container.name, count)
        pod.end_container(container.name, self.scripts.find(pod.item, container.spec).stop_code)

    def write_log(self, namespace: str, pod: str, text: str, container: str = "") -> None:
        """Let a container log the lines of ``text``, the first unless it is named."""
        self._call(self._write_log, namespace, pod, container, text)

    def evict(
        self, namespace: str, pod: str, reason: str = "Evicted", message: str = "the node was low on memory"
    ) -> None:
        """End a pod as a node does that lacks something."""
        self._run(self._find(namespace, pod).evict(reason, message))

    def set_node(self, name: str, ready: bool) -> None:
        """Let a node be ready or not."""
        (self._unready.discard if ready else self._unready.add)(name)
        self._run(self._report_node(name))

    def silence_node(self, name: str, silent: bool) -> None:
        """Let the API server reach the kubelet of a node, or not: nobody listens where it is said to be."""
        (self._silent.add if silent else self._silent.discard)(name)
        self._run(self._report_node(name))

    # What pods, streams and the provisioner use

    def next_address(self) -> str:
        """An address that no pod had before."""
        return str(FIRST_ADDRESS + next(self._addresses))

    def note_fault(self, task: asyncio.Task[None]) -> None:
        """Remember that the script of a pod is wrong, or this code."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.faults.append(fault)

    async def record(self, pod: Object, reason: str, message: str, container: str = "", count: int = 1) -> None:
        """Record a warning about ``pod``, or about a container of it, that was there ``count`` times."""
        metadata, now = pod["metadata"], format_now()
        event = {
            "metadata": {"name": f"{metadata['name'][:200]}.{uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                **({"fieldPath": f"spec.containers{{{container}}}"} if container else {}),
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": count,
            "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
            "reportingComponent": "kubelet",
            "reportingInstance": pod["spec"]["nodeName"],
        }
        try:
            await self.client.request("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", event)
        except httpx2.HTTPStatusError:
            return  # its namespace is going away

    # The thread

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        async def call() -> None:
            function(*arguments)

        self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60.0)

    def _set_script(self, pod: str, script: Script, container: str) -> None:
        self.scripts.set(pod, script, container)
        for item in self.pods.values():
            item.reread_scripts()

    def _end_container(self, namespace: str, pod: str, container: str, end: tuple[int, str]) -> None:
        found = self._find(namespace, pod)
        found.end_container(container or found.containers[0].name, *end)

    def _write_log(self, namespace: str, pod: str, container: str, text: str) -> None:
        found = self._find(namespace, pod)
        name = container or found.containers[0].name
        next(each for each in found.every_container if each.name == name).write(text)

    def _find(self, namespace: str, pod: str) -> Pod:
        for found in self.pods.values():
            if found.name == pod and found.item["metadata"]["namespace"] == namespace:
                return found
        raise KeyError(f"no node runs the pod {namespace}/{pod}")

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._work())
        except BaseException as fault:
            self.faults.append(fault)
            if not self._ready.done():
                self._ready.set_exception(fault)
            raise
        finally:
            self._loop.close()

    async def _work(self) -> None:
        with node_address() as self.address:
            await self._work_at_address()

    async def _work_at_address(self) -> None:
        self.client = Client(self._kubeconfig)
        streams = StreamServer(self, self._kubeconfig.parent)
        try:
            self.port, self._ports = await streams.start(self.address, self.nodes)
            for name in self.nodes:
                await self._register(name)
            self.provisioner = Provisioner(self.client)
            tasks = [
                asyncio.create_task(self.client.follow("/api/v1/pods", self._on_pod, "fieldSelector=spec.nodeName!=")),
                asyncio.create_task(self._renew_leases()),
                *(asyncio.create_task(work) for work in self.provisioner.works()),
            ]
            for task in tasks:
                task.add_done_callback(self.note_fault)
            self._ready.set_result(None)
            await self._ended.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(pod.close() for pod in self.pods.values()))
        finally:
            await streams.stop()
            await self.client.close()

    async def _on_pod(self, event: str, item: Object) -> None:
        metadata = item["metadata"]
        present = self.pods.get(metadata["uid"])
        if event == "DELETED":
            if present is not None:
                await self.pods.pop(metadata["uid"]).close()
        elif present is not None:
            present.update(item)
        elif item["spec"]["nodeName"] in self.nodes and (item.get("status") or {}).get("phase") not in (
            "Succeeded",
            "Failed",
        ):
            pod = self.pods[metadata["uid"]] = Pod(item, self)
            pod.update(item)

    # Nodes

    async def _register(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        node = {"metadata": {"name": name, "labels": labels}, "spec": {"providerID": f"test://{name}"}}
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}}
        for path, item in (
            ("/api/v1/nodes", node),
            ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease),
        ):
            try:
                await self.client.request("POST", path, item)
            except httpx2.HTTPStatusError as refusal:
                if refusal.response.status_code != 409:
                    raise
        await self._report_node(name)

    async def _report_node(self, name: str) -> None:
        pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
        ready = name not in self._unready
        status = {
            "capacity": CAPACITY,
            "allocatable": CAPACITY,
            "addresses": [{"type": "InternalIP", "address": self.address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": NO_PORT if name in self._silent else self._ports[name]}},
            "conditions": [
                *(_describe_condition(kind, False, "KubeletHasSufficient") for kind in pressures),
                _describe_condition("Ready", ready, "KubeletReady" if ready else "KubeletNotReady"),
            ],
            "nodeInfo": {
                "machineID": name,
                "systemUUID": name,
                "bootID": name,
                "kernelVersion": "6.1.0",
                "osImage": "Tests",
                "containerRuntimeVersion": "test://1",
                "kubeletVersion": "v1.34.0",
                "kubeProxyVersion": "v1.34.0",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }
        await self.client.merge(f"/api/v1/nodes/{name}/status", {"status": status})

    async def _renew_leases(self) -> None:
        while True:
            for name in self.nodes:
                path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
                now = format_now().replace("Z", ".000000Z")
                await self.client.merge(path, {"spec": {"holderIdentity": name, "renewTime": now}})
            await asyncio.sleep(LEASE_SECONDS)


def _describe_condition(kind: str, true: bool, reason: str) -> Object:
    now = format_now()
    return {
        "type": kind,
        "status": "True" if true else "False",
        "reason": reason,
        "message": reason,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
