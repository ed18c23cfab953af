"""The reader of the engine against a real cluster: replicas, logs and programs in containers."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from reconciler.engines.kubernetes.reading import logs
from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.engines.kubernetes.reading.logs import ClusterLogSearch
from reconciler.engines.kubernetes.rendering.names import build_metadata, token_secret_name
from reconciler.engines.reading import ExecTarget, ReplicaRow, ReplicaState, TcpAddress, TcpLink
from reconciler.model.key import Key, Kind
from reconciler.terminal.session import ExecSession, TerminalSize
from tests.engines.kubernetes.reading_kit import ORG, make_settings, namespace_of, own, pod_of, select, texts_of
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.rights import give_rights

pytestmark = pytest.mark.cluster

T = TypeVar("T")


class Pods:
    """Pods of the workload ``web`` in a namespace, and their reader."""

    def __init__(self, cluster: Cluster, namespace: str, path: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.key = Key(Kind.WORKLOAD, namespace, "web")
        self.settings = make_settings(path, give_rights(cluster))
        self.reader = KubernetesReader(self.settings, "here")
        cluster.apply(namespace_of(namespace))

    def start(self, name: str, script: str = "", **spec: Any) -> None:
        """A pod, once it runs or has ended."""
        pod = pod_of(self.key, name)
        pod["spec"] |= spec
        pod["spec"]["containers"][0]["env"] = [{"name": "TEST_SCRIPT", "value": script}] if script else []
        self.cluster.apply(pod)
        self.wait(
            lambda: any((stream.gvc, stream.replica) == (self.namespace, name) for stream in self.reader.log_streams())
        )

    def wait(self, question: Callable[[], T]) -> T:
        """Its answer, once that is something."""
        answer: T = self.cluster.wait_for(question, seconds=90.0)
        return answer

    def rows(self) -> list[ReplicaRow]:
        """The replicas."""
        return [row for row in self.reader.replicas() if row.key == self.key]

    def search(self) -> ClusterLogSearch:
        """A search for all lines, but for what the kubelet of tests notes of each start."""
        return self.reader.search_logs(select(f'{{gvc="{self.namespace}"}} != "main started"'))

    async def run(self, *argv: str, terminal: TerminalSize | None = None) -> ExecSession:
        """A program in the pod ``web-0``."""
        return await self.reader.open_session(ExecTarget("here", self.key, "web-0", "main"), argv, terminal)


@pytest.fixture
def pods(cluster: Cluster, kubelet: Kubelet, namespace: str, tmp_path: Path) -> Pods:
    """No pods yet."""
    return Pods(cluster, namespace, tmp_path)


async def read_output(session: ExecSession) -> bytes:
    """All that a program prints."""
    content = b""
    while (output := await session.read()) is not None:
        content += output.content
    return content


def find_search(pods: Pods, last: bytes) -> ClusterLogSearch | None:
    """A search, once ``last`` is the newest line."""
    search = pods.search()
    return search if texts_of(search.backward())[:1] == [last] else None


def test_a_pod_is_a_replica(pods: Pods) -> None:
    pods.start("web-0")
    row = pods.wait(lambda: next((row for row in pods.rows() if row.state is ReplicaState.READY), None))
    assert row is not None
    assert (row.key, row.name, row.version, row.containers[0].name) == (pods.key, "web-0", 3, "main")
    assert row.node in ("node-a", "node-b")


def test_logs_come_back_and_go_on(pods: Pods, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line once, also behind a restart."""
    monkeypatch.setattr(logs, "LIST_SECONDS", 0.0)
    pods.start("web-0", "log=begin")
    kubelet.write_log(pods.namespace, "web-0", "one\ntwo")
    search = pods.wait(lambda: find_search(pods, b"two"))
    assert search is not None
    assert texts_of(search.backward()) == [b"two", b"one", b"begin"]
    kubelet.write_log(pods.namespace, "web-0", "three")
    assert pods.wait(lambda: texts_of(search.more())) == [b"three"]
    kubelet.write_log(pods.namespace, "web-0", "last words")
    kubelet.end_container(pods.namespace, "web-0", 1)
    lines: list[bytes] = []
    pods.wait(lambda: lines.extend(texts_of(search.more())) or lines[-1:] == [b"begin"])
    assert lines == [b"last words", b"begin"]
    assert texts_of(pods.search().backward()) == [
        *(b"begin", b"last words", b"three"),
        *(b"two", b"one", b"begin"),
    ]


async def test_a_program_runs_in_a_container(pods: Pods) -> None:
    pods.start("web-0")
    content = bytes(range(256)) * 1000
    session = await pods.run("cat")
    await session.write(content)
    await session.close_stdin()
    assert await read_output(session) == content
    assert await session.wait() == 0
    await session.close()


async def test_its_exit_code_comes_back(pods: Pods) -> None:
    pods.start("web-0")
    session = await pods.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert sorted((await read_output(session)).split()) == [b"err", b"out"]
    assert await session.wait() == 3
    await session.close()


async def test_a_terminal_has_its_size(pods: Pods) -> None:
    pods.start("web-0")
    session = await pods.run("sh", "-c", "sleep 0.3; stty size", terminal=TerminalSize(33, 111))
    assert b"33 111" in await read_output(session)
    assert await session.wait() == 0
    await session.close()


def test_a_workload_is_known_by_its_token_and_its_address(pods: Pods) -> None:
    pods.start("web-0")
    metadata = build_metadata(own(pods.key), ORG, pods.namespace, token_secret_name("web"))
    data = {"token": base64.b64encode(b"rw_x").decode()}
    pods.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data, "immutable": True})
    path = f"/api/v1/namespaces/{pods.namespace}/pods/web-0"
    address = pods.wait(lambda: pods.cluster.api.get(path).json()["status"].get("podIP"))
    server = TcpAddress("10.0.0.1", 443)
    assert pods.reader.is_sender(pods.key, "rw_x", TcpLink(TcpAddress(address, 4000), server))
    assert not pods.reader.is_sender(pods.key, "rw_y", TcpLink(TcpAddress(address, 4000), server))
    assert not pods.reader.is_sender(pods.key, "rw_x", TcpLink(TcpAddress("10.0.0.2", 4000), server))


def test_a_read_of_replicas_is_quick(pods: Pods) -> None:
    """The connection stays open between reads."""
    pods.start("web-0")
    pods.reader.replicas()
    begin = time.monotonic()
    for _ in range(5):
        pods.reader.replicas()
    assert time.monotonic() - begin < 30
