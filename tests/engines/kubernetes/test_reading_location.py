"""Replicas at a location on a cluster, who sends a request there, and a cluster that does not answer."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
import time

import pytest

from reconciler.engines.kubernetes.reading import connections, location, replicas
from reconciler.engines.kubernetes.rendering.names import build_metadata, token_secret_name
from reconciler.engines.reading import (
    ReplicaState,
    SupportsLogs,
    SupportsReplicaRows,
    SupportsSenders,
    SupportsSessions,
    TcpAddress,
    TcpLink,
)
from reconciler.engines.workload.tokens import make_token
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason
from tests.engines.kubernetes.reading_kit import EVERYTHING, ORG, WEB, ReadCluster, namespace_of, own, pod_of, running

API = Key(Kind.WORKLOAD, "shop", "api")


def add_usage(cluster: ReadCluster, pod: str, cpu: str, memory: str) -> None:
    """What metrics-server measures of a pod."""
    labels = cluster.server.object("Pod", pod, "shop")["metadata"]["labels"]
    cluster.server.create(
        {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "PodMetrics",
            "metadata": {"name": pod, "namespace": "shop", "labels": labels},
            "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}],
        }
    )


def add_token(cluster: ReadCluster, key: Key, token: str, instance: str = ORG) -> None:
    """The Secret with the token of a workload."""
    metadata = build_metadata(own(key, instance=instance), ORG, key.gvc, token_secret_name(key.name))
    data = {"token": base64.b64encode(token.encode()).decode()}
    cluster.server.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


def link_from(host: str) -> TcpLink:
    return TcpLink(TcpAddress(host, 40000), TcpAddress("10.0.0.1", 443))


def test_the_reader_has_all_that_a_cluster_can_show(cluster: ReadCluster) -> None:
    for protocol in (SupportsReplicaRows, SupportsLogs, SupportsSessions, SupportsSenders):
        assert isinstance(cluster.reader, protocol)


def test_pods_are_replicas_in_order_of_workload_and_name(cluster: ReadCluster) -> None:
    cluster.add_pod("web-2")
    cluster.add_pod("web-1", status=running(restarts=2))
    cluster.add_pod("api-1", API)
    rows = cluster.reader.replicas()
    assert [(row.key.name, row.name, row.location, row.version) for row in rows] == [
        ("api", "api-1", "here", 3),
        ("web", "web-1", "here", 3),
        ("web", "web-2", "here", 3),
    ]
    assert [row.restarts for row in rows] == [0, 2, 0]
    assert {row.state for row in rows} == {ReplicaState.READY}
    assert {(row.cpu, row.memory) for row in rows} == {(None, None)}


def test_usage_is_what_the_cluster_measures(cluster: ReadCluster) -> None:
    cluster.server.install("PodMetrics")
    cluster.add_pod("web-1")
    cluster.add_pod("web-2")
    add_usage(cluster, "web-1", "250m", "64Mi")
    assert [(row.cpu, row.memory) for row in cluster.reader.replicas()] == [(250, 64 << 20), (None, None)]


@pytest.mark.parametrize("status", [403, 500, 503])
def test_replicas_are_shown_where_metrics_fail(cluster: ReadCluster, status: int) -> None:
    cluster.server.install("PodMetrics")
    cluster.add_pod("web-1")
    cluster.server.fail("list pods.metrics.k8s.io", status, times=-1)
    assert [(row.name, row.cpu) for row in cluster.reader.replicas()] == [("web-1", None)]


def test_a_request_that_is_cut_off_cuts_no_other(cluster: ReadCluster) -> None:
    """Requests of the same moment have the same connections to the cluster."""
    cluster.server.install("PodMetrics")
    cluster.add_pod("web-1")
    cluster.server.delay("list pods", 0.3)
    cluster.server.drop("list pods.metrics.k8s.io")
    assert [row.name for row in cluster.reader.replicas()] == ["web-1"]


def test_replicas_do_not_wait_for_metrics_that_never_come(
    cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "METRICS_SECONDS", 0.2)
    cluster.server.install("PodMetrics")
    cluster.add_pod("web-1")
    cluster.server.stall("list pods.metrics.k8s.io")
    assert [row.name for row in cluster.reader.replicas()] == ["web-1"]


def test_pods_in_namespaces_of_others_are_no_replicas(cluster: ReadCluster) -> None:
    """Not even with all labels of ours."""
    cluster.server.create(namespace_of("depot", instance="other"))
    cluster.add_pod("web-1", Key(Kind.WORKLOAD, "depot", "web"))
    cluster.add_pod("web-2")
    assert [row.name for row in cluster.reader.replicas()] == ["web-2"]


def test_names_that_labels_cannot_hold_are_complete(cluster: ReadCluster) -> None:
    """A GVC may have 64 characters, and a name may look like a shortened one."""
    gvc = "g" * 64
    namespace = namespace_of(gvc)
    namespace["metadata"]["name"] = "long"
    cluster.server.create(namespace)
    key = Key(Kind.WORKLOAD, gvc, "web-0123456789abcdef")
    pod = pod_of(key, "web-1")
    pod["metadata"]["namespace"] = "long"
    cluster.server.create(pod)
    cluster.server.patch("Pod", "web-1", "long", {"status": running()}, subresource="status")
    assert [row.key for row in cluster.reader.replicas()] == [key]


@pytest.mark.parametrize("reads", ["replicas", "streams", "search", "token"])
def test_a_cluster_that_hangs_is_an_error_soon(
    cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    assert connections.ANSWER_SECONDS <= 10
    monkeypatch.setattr(connections.ask_cluster, "__defaults__", (0.3,))
    monkeypatch.setattr(location, "_CHECK_SECONDS", 0.3)
    cluster.server.stall("*", times=-1)
    ways = {
        "replicas": cluster.reader.replicas,
        "streams": cluster.reader.log_streams,
        "search": lambda: cluster.reader.search_logs(EVERYTHING),
        "token": lambda: cluster.reader.has_token(WEB, "rw_x"),
    }
    begin = time.monotonic()
    with pytest.raises(EngineError, match=r"does not answer within 0.3 s") as raised:
        ways[reads]()
    assert raised.value.reason == Reason.CLUSTER_UNREACHABLE
    assert time.monotonic() - begin < 60


def test_credentials_that_are_refused_are_an_error_for_people(cluster: ReadCluster) -> None:
    cluster.server.expire_token()
    with pytest.raises(EngineError, match="renew the credentials") as raised:
        cluster.reader.replicas()
    assert raised.value.reason == Reason.CREDENTIALS_REFUSED
    cluster.server.heal()
    assert cluster.reader.replicas() == []


def test_a_token_is_that_of_the_secret(cluster: ReadCluster) -> None:
    token, other = make_token("here", WEB), make_token("here", API)
    add_token(cluster, WEB, token)
    add_token(cluster, API, other)
    assert cluster.reader.has_token(WEB, token)
    assert not cluster.reader.has_token(WEB, other)
    assert not cluster.reader.has_token(WEB, "")
    assert not cluster.reader.has_token(WEB, "\udc80")
    assert not cluster.reader.has_token(Key(Kind.WORKLOAD, "shop", "nothing"), token)


def test_a_secret_of_others_is_no_token(cluster: ReadCluster) -> None:
    token = make_token("here", WEB)
    add_token(cluster, WEB, token, instance="other")
    assert not cluster.reader.has_token(WEB, token)


def test_a_sender_has_the_address_of_a_running_pod(cluster: ReadCluster) -> None:
    token = make_token("here", WEB)
    add_token(cluster, WEB, token)
    cluster.add_pod("web-1", status=running(podIP="10.1.0.7", podIPs=[{"ip": "10.1.0.7"}, {"ip": "fd00::7"}]))
    cluster.add_pod("web-2", status=running(podIP="10.1.0.8", phase="Failed"))
    cluster.add_pod("api-1", API, status=running(podIP="10.1.0.9"))
    answers = {host: cluster.reader.is_sender(WEB, token, link_from(host)) for host in HOSTS}
    assert answers == HOSTS
    assert not cluster.reader.is_sender(WEB, make_token("here", WEB), link_from("10.1.0.7"))
    assert not cluster.reader.is_sender(WEB, token, os.getpid())


HOSTS = {
    "10.1.0.7": True,
    "::ffff:10.1.0.7": True,
    "fd00:0::7": True,
    "10.1.0.8": False,
    "10.1.0.9": False,
    "": False,
    "localhost": False,
}
"""Addresses, and whether a process of the workload sends from there."""


def test_a_pod_in_the_network_of_its_node_sends_nothing(cluster: ReadCluster) -> None:
    """All programs of the node have its address."""
    token = make_token("here", WEB)
    add_token(cluster, WEB, token)
    pod = pod_of(WEB, "web-1")
    pod["spec"]["hostNetwork"] = True
    cluster.server.create(pod)
    cluster.set_status("web-1", running(podIP="10.0.0.1"))
    assert not cluster.reader.is_sender(WEB, token, link_from("10.0.0.1"))


def test_many_reads_log_in_once(cluster: ReadCluster) -> None:
    """Whatever thread asks."""
    seen = [cluster.reader.replicas()]
    thread = threading.Thread(target=lambda: seen.append(cluster.reader.replicas()))
    thread.start()
    thread.join()
    assert seen == [[], []]
    assert len({name for name in map(str, threading.enumerate()) if "clusters" in name}) == 1


async def test_a_read_works_beside_an_event_loop(cluster: ReadCluster) -> None:
    """The API asks whose token it is while it answers."""
    assert not cluster.reader.has_token(WEB, "rw_x")


def test_the_plugin_costs_an_idle_process_nothing() -> None:
    program = "import sys, reconciler.engines.kubernetes.plugin; print(*{'httpx2', 'lightkube'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
