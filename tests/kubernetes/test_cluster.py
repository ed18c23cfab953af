"""The cluster of the tests is a real one, and its kubelets report what their scripts ask for."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.metrics import register_metrics
from tests.kubernetes.cluster.objects import (
    STORAGE_CLASS,
    describe_job,
    describe_pod,
    describe_template,
    describe_workload,
)
from tests.kubernetes.cluster.scripts import Script
from tests.support.processes import ROOT

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


def read_object(cluster: Cluster, path: str) -> Object:
    """An object, or nothing where it is not there."""
    answer = cluster.api.get(path)
    return answer.json() if answer.is_success else {}


def list_pods(cluster: Cluster, namespace: str) -> list[Object]:
    """All pods of a namespace."""
    listed: list[Object] = read_object(cluster, f"/api/v1/namespaces/{namespace}/pods")["items"]
    return listed


def read_state(cluster: Cluster, namespace: str, name: str) -> Object:
    """What its container ``main`` does: its entry among the statuses."""
    status = read_object(cluster, f"/api/v1/namespaces/{namespace}/pods/{name}").get("status", {})
    return next(iter(status.get("containerStatuses", ())), {})


def wait_for_state(cluster: Cluster, namespace: str, name: str, kind: str, reason: str = "") -> Object:
    """Return its entry among the statuses once its container is ``kind``, with ``reason`` if that is named."""

    def find() -> Object | None:
        entry = read_state(cluster, namespace, name)
        inner = entry.get("state", {}).get(kind)
        return entry if inner is not None and inner.get("reason", "") == (reason or inner.get("reason", "")) else None

    found: Object = cluster.wait_for(find, f"{name} {kind} {reason}", seconds=90.0)
    return found


def test_kubectl_sees_the_version_and_the_nodes(cluster: Cluster, kubelet: Kubelet) -> None:
    version = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]
    assert version["gitVersion"] == cluster.version
    assert f"{version['major']}.{version['minor']}" == cluster.minor
    assert cluster.kubectl("get", "nodes", "-o", "name").split() == ["node/node-a", "node/node-b"]
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=90s")


def test_a_deployment_becomes_available(cluster: Cluster, namespace: str) -> None:
    cluster.apply(describe_workload("Deployment", namespace, "web", describe_template("web"), replicas=2))
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    cluster.wait_for(lambda: read_object(cluster, path)["status"].get("availableReplicas") == 2, seconds=90.0)
    assert {pod["status"]["phase"] for pod in list_pods(cluster, namespace)} == {"Running"}
    assert len({pod["status"]["podIP"] for pod in list_pods(cluster, namespace)}) == 2


def test_a_pod_that_is_never_ready_holds_back_a_rollout(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    cluster.apply(describe_workload("Deployment", namespace, "web", describe_template("web"), replicas=1))
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    cluster.wait_for(lambda: read_object(cluster, path)["status"].get("availableReplicas") == 1, seconds=90.0)
    changed = describe_template("web", "ready=false")
    cluster.apply(describe_workload("Deployment", namespace, "web", changed, replicas=1))
    cluster.wait_for(lambda: len(list_pods(cluster, namespace)) == 2, seconds=90.0)
    assert read_object(cluster, path)["status"]["availableReplicas"] == 1
    kubelet.set_script(f"{namespace}/*", Script())
    cluster.wait_for(lambda: len(list_pods(cluster, namespace)) == 1, seconds=90.0)


def test_a_job_completes_and_one_that_fails_fails(cluster: Cluster, namespace: str) -> None:
    cluster.apply(describe_job(namespace, "good"), describe_job(namespace, "bad", "exit=3", backoffLimit=0))
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    cluster.wait_for(lambda: read_object(cluster, f"{jobs}/good")["status"].get("succeeded") == 1, seconds=90.0)
    cluster.wait_for(lambda: read_object(cluster, f"{jobs}/bad")["status"].get("failed") == 1, seconds=90.0)
    [failed] = [pod for pod in list_pods(cluster, namespace) if pod["metadata"]["labels"]["app"] == "bad"]
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_claims_of_a_stateful_set_are_bound_and_grow(cluster: Cluster, namespace: str) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "test",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    template = describe_template("db")
    template["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec = {"replicas": 2, "serviceName": "db", "volumeClaimTemplates": [claim]}
    cluster.apply(STORAGE_CLASS, describe_workload("StatefulSet", namespace, "db", template, **spec))
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/db"
    cluster.wait_for(lambda: read_object(cluster, path)["status"].get("readyReplicas") == 2, seconds=90.0)
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    assert {each["status"]["phase"] for each in read_object(cluster, claims)["items"]} == {"Bound"}
    bigger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    cluster.api.patch(f"{claims}/data-db-0", json=bigger, headers=headers).raise_for_status()
    cluster.wait_for(lambda: read_object(cluster, f"{claims}/data-db-0")["status"]["capacity"]["storage"] == "2Gi")
    volume = read_object(cluster, f"{claims}/data-db-0")["spec"]["volumeName"]
    assert read_object(cluster, f"/api/v1/persistentvolumes/{volume}")["spec"]["capacity"]["storage"] == "2Gi"


def test_a_pod_that_crashes_backs_off(cluster: Cluster, namespace: str) -> None:
    cluster.apply(describe_pod(namespace, "crashing", "exit=1 exit_after=0.01"))
    entry = wait_for_state(cluster, namespace, "crashing", "waiting", "CrashLoopBackOff")
    assert entry["restartCount"] >= 1
    assert entry["lastState"]["terminated"]["exitCode"] == 1
    assert entry["lastState"]["terminated"]["reason"] == "Error"


def test_an_image_that_cannot_be_pulled_is_reported_until_it_can(
    cluster: Cluster, kubelet: Kubelet, namespace: str
) -> None:
    kubelet.set_script(f"{namespace}/denied", Script(pull="denied: requested access to the resource is denied"))
    cluster.apply(describe_pod(namespace, "denied"))
    entry = wait_for_state(cluster, namespace, "denied", "waiting", "ImagePullBackOff")
    assert "denied" in entry["state"]["waiting"]["message"]
    kubelet.set_script(f"{namespace}/denied", Script())
    wait_for_state(cluster, namespace, "denied", "running")


def test_a_container_that_runs_out_of_memory_starts_again(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    cluster.apply(describe_pod(namespace, "large"))
    wait_for_state(cluster, namespace, "large", "running")
    kubelet.end_container(namespace, "large", 137, "OOMKilled")
    cluster.wait_for(lambda: read_state(cluster, namespace, "large").get("restartCount") == 1, seconds=90.0)
    assert read_state(cluster, namespace, "large")["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_a_pod_ends_within_its_grace_period(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    cluster.apply(describe_pod(namespace, "slow", "stop_after=0.4"))
    wait_for_state(cluster, namespace, "slow", "running")
    path = f"/api/v1/namespaces/{namespace}/pods/slow"
    cluster.api.delete(path).raise_for_status()
    assert read_object(cluster, path)["metadata"]["deletionGracePeriodSeconds"] == 30
    cluster.wait_for(lambda: not read_object(cluster, path), seconds=90.0)


def test_containers_for_initialization_come_first(cluster: Cluster, namespace: str) -> None:
    first = {"name": "first", "image": "example.test/init:1"}
    beside = {"name": "beside", "image": "example.test/sidecar:1", "restartPolicy": "Always"}
    cluster.apply(describe_pod(namespace, "staged", initContainers=[first, beside]))
    wait_for_state(cluster, namespace, "staged", "running")
    statuses = read_object(cluster, f"/api/v1/namespaces/{namespace}/pods/staged")["status"]["initContainerStatuses"]
    assert [next(iter(entry["state"])) for entry in statuses] == ["terminated", "running"]
    cluster.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/staged", "--timeout=90s")


def test_a_pod_fails_whose_initialization_fails(cluster: Cluster, namespace: str) -> None:
    first = {"name": "first", "image": "example.test/init:1", "env": [{"name": "TEST_SCRIPT", "value": "exit=2"}]}
    cluster.apply(describe_pod(namespace, "broken", initContainers=[first], restartPolicy="Never"))
    path = f"/api/v1/namespaces/{namespace}/pods/broken"
    cluster.wait_for(lambda: read_object(cluster, path)["status"]["phase"] == "Failed", seconds=90.0)


def test_a_pod_that_is_evicted_is_replaced(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    cluster.apply(describe_workload("Deployment", namespace, "web", describe_template("web"), replicas=1))
    cluster.wait_for(lambda: len(list_pods(cluster, namespace)) == 1, seconds=90.0)
    name = list_pods(cluster, namespace)[0]["metadata"]["name"]
    wait_for_state(cluster, namespace, name, "running")
    kubelet.evict(namespace, name)
    cluster.wait_for(lambda: len(list_pods(cluster, namespace)) == 2, seconds=90.0)
    status = read_object(cluster, f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")


def test_a_node_that_is_not_ready_gets_no_pods(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    kubelet.set_node("node-a", ready=False)
    try:
        cluster.wait_for(lambda: read_object(cluster, "/api/v1/nodes/node-a")["spec"].get("taints"), seconds=90.0)
        cluster.apply(describe_pod(namespace, "one"), describe_pod(namespace, "two"))
        for name in ("one", "two"):
            wait_for_state(cluster, namespace, name, "running")
        assert {pod["spec"]["nodeName"] for pod in list_pods(cluster, namespace)} == {"node-b"}
    finally:
        kubelet.set_node("node-a", ready=True)
        cluster.wait_for(lambda: not read_object(cluster, "/api/v1/nodes/node-a")["spec"].get("taints"), seconds=90.0)


def test_kubectl_reads_logs_of_this_run_and_of_the_one_before(
    cluster: Cluster, kubelet: Kubelet, namespace: str
) -> None:
    kubelet.set_script(f"{namespace}/chatty", Script(log="one\ntwo"))
    cluster.apply(describe_pod(namespace, "chatty"))
    wait_for_state(cluster, namespace, "chatty", "running")
    assert cluster.kubectl("logs", "-n", namespace, "chatty") == "one\ntwo\n"
    assert cluster.kubectl("logs", "-n", namespace, "chatty", "--tail=1") == "two\n"
    kubelet.set_script(f"{namespace}/chatty", Script(log="three"))
    kubelet.end_container(namespace, "chatty", 1)
    cluster.wait_for(lambda: read_state(cluster, namespace, "chatty").get("restartCount") == 1, seconds=90.0)
    assert cluster.kubectl("logs", "-n", namespace, "chatty") == "three\n"
    assert cluster.kubectl("logs", "-n", namespace, "chatty", "--previous") == "one\ntwo\n"


def test_kubectl_runs_commands_in_a_container(cluster: Cluster, namespace: str) -> None:
    cluster.apply(describe_pod(namespace, "shell"))
    wait_for_state(cluster, namespace, "shell", "running")
    assert cluster.kubectl("exec", "-n", namespace, "shell", "--", "echo", "hello") == "hello\n"
    cluster.kubectl("exec", "-n", namespace, "shell", "--", "sh", "-c", "exit 7", code=7)


def test_a_container_starts_once_its_secret_is_there(cluster: Cluster, namespace: str) -> None:
    pod = describe_pod(namespace, "waiting")
    pod["spec"]["containers"][0]["env"] = [
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "login", "key": "token"}}},
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "BOTH", "value": "$(WHO) has $(TOKEN), not $$(TOKEN) or $(NOTHING)"},
    ]
    cluster.apply(pod)
    entry = wait_for_state(cluster, namespace, "waiting", "waiting", "CreateContainerConfigError")
    assert entry["state"]["waiting"]["message"] == 'secret "login" not found'
    metadata = {"name": "login", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": "s3"}})
    wait_for_state(cluster, namespace, "waiting", "running")
    printed = cluster.kubectl("exec", "-n", namespace, "waiting", "--", "printenv", "BOTH")
    assert printed == "waiting has s3, not $(TOKEN) or $(NOTHING)\n"


def test_a_volume_without_its_secret_and_a_failed_probe_are_events(cluster: Cluster, namespace: str) -> None:
    volume = {"name": "files", "secret": {"secretName": "absent"}}
    unready = describe_pod(namespace, "unready", "ready=false")
    unready["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/", "port": 80}}
    cluster.apply(describe_pod(namespace, "unmounted", volumes=[volume]), unready)

    def list_events() -> set[tuple[str, str]]:
        items = read_object(cluster, f"/api/v1/namespaces/{namespace}/events")["items"]
        return {(item["involvedObject"]["name"], item["reason"]) for item in items}

    expected = {("unmounted", "FailedMount"), ("unready", "Unhealthy")}
    cluster.wait_for(lambda: expected <= list_events(), "both events", seconds=90.0)
    wait_for_state(cluster, namespace, "unmounted", "waiting", "ContainerCreating")


def test_kubectl_follows_logs_until_the_container_ends(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    kubelet.set_script(f"{namespace}/runner", Script(log="begin"))
    cluster.apply(describe_pod(namespace, "runner", restartPolicy="Never"))
    wait_for_state(cluster, namespace, "runner", "running")
    with cluster.start_kubectl("logs", "-f", "-n", namespace, "runner") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        kubelet.write_log(namespace, "runner", "more")
        assert process.stdout.readline() == "more\n"
        kubelet.end_container(namespace, "runner", 0)
        assert process.stdout.read() == ""
        assert process.wait(60.0) == 0


def test_a_session_passes_input_on_and_may_have_a_terminal(cluster: Cluster, namespace: str) -> None:
    cluster.apply(describe_pod(namespace, "shell"))
    wait_for_state(cluster, namespace, "shell", "running")
    with cluster.start_kubectl("exec", "-i", "-n", namespace, "shell", "--", "sort") as process:
        assert process.communicate("b\na\n", timeout=60.0) == ("a\nb\n", "")
    controller, terminal = os.openpty()
    words = ("exec", "-it", "-n", namespace, "shell", "--", "sh", "-c", "tty && exit 3")
    with cluster.start_kubectl(*words, stdin=terminal) as process:
        assert process.communicate(timeout=60.0)[0].startswith("/dev/pts/")
    os.close(terminal)
    os.close(controller)
    assert process.returncode == 3


def test_the_metrics_api_is_served_once_it_is_registered(cluster: Cluster, kubelet: Kubelet, namespace: str) -> None:
    kubelet.usage[f"{namespace}/*"] = ("250m", "64Mi")
    cluster.apply(describe_pod(namespace, "busy"), *register_metrics(kubelet.port))
    wait_for_state(cluster, namespace, "busy", "running")
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
    cluster.wait_for(lambda: read_object(cluster, path).get("items"), seconds=90.0)
    assert read_object(cluster, path)["items"][0]["containers"][0]["usage"] == {"cpu": "250m", "memory": "64Mi"}


def test_a_user_may_do_only_what_roles_grant(cluster: Cluster, namespace: str) -> None:
    config = cluster.kubeconfig_of("somebody", "readers")
    refusal = cluster.kubectl("auth", "can-i", "list", "pods", "-n", namespace, config=config, code=1)
    assert refusal == "no\n"
    subject = {"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"}
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "readers", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [subject],
        }
    )
    with cluster.client_of(config) as reader:  # the server learns of a role by a watch, a moment later
        cluster.wait_for(lambda: reader.get(f"/api/v1/namespaces/{namespace}/pods").is_success, seconds=90.0)


def test_a_token_of_a_service_account_expires(cluster: Cluster, namespace: str) -> None:
    with cluster.client_of(cluster.kubeconfig_of_token("none", "")) as client:

        def ask(seconds: float) -> int:
            token = cluster.token_of(namespace, "default", seconds)
            path = f"/api/v1/namespaces/{namespace}/pods"
            return client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code

        assert ask(60.0) == 403  # known, and without any role
        assert ask(-60.0) == 401


def test_a_certificate_of_a_user_expires(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with cluster.client_of(cluster.kubeconfig_of("late", "system:masters", seconds=-1.0)) as client:
        assert client.get(path).status_code == 401


def test_the_certificate_of_the_server_expires_until_it_is_renewed(cluster: Cluster) -> None:
    def ask() -> str:
        with cluster.client_of(cluster.kubeconfig) as client:
            try:
                return str(client.get("/readyz").status_code)
            except httpx2.ConnectError as error:
                return str(error)

    with cluster.expired_certificate():
        cluster.wait_for(lambda: "certificate has expired" in ask(), seconds=90.0)
    cluster.wait_for(lambda: ask() == "200", seconds=90.0)


def test_old_versions_expire(cluster: Cluster, namespace: str) -> None:
    for name in ("a", "b", "c"):
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    more = cluster.api.get(path, params={"limit": 1}).json()["metadata"]["continue"]
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d", "namespace": namespace}})
    cluster.compact()
    assert cluster.api.get(path, params={"limit": 1, "continue": more}).status_code == 410
    with cluster.stopped_api_server():
        pass
    with cluster.api.stream("GET", path, params={"watch": 1, "resourceVersion": "1"}) as answer:
        event = json.loads(next(answer.iter_lines()))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_paused_server_answers_after_the_pause_and_a_stopped_one_after_its_start(
    cluster: Cluster, kubelet: Kubelet, namespace: str
) -> None:
    with cluster.api_server.paused(), pytest.raises(httpx2.TimeoutException):
        cluster.api.get("/readyz", timeout=0.3)
    cluster.wait_until_ready()
    with cluster.stopped_api_server(), pytest.raises(httpx2.TransportError):
        cluster.api.get("/readyz")
    cluster.apply(describe_pod(namespace, "later"))
    wait_for_state(cluster, namespace, "later", "running")


def test_a_cluster_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tests.kubernetes.cluster"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        wait_for(lambda: "KUBECONFIG" in log.read_text() or process.poll() is not None, "the cluster starts")
        assert process.poll() is None
        assert len(find_processes(tmp_path)) == 4
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not find_processes(tmp_path), "all components end")


def wait_for(question: Callable[[], object], what: str) -> None:
    """Return once the answer is true."""
    deadline = time.monotonic() + 90.0
    while not question():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def find_processes(folder: Path) -> list[str]:
    """Numbers of the processes that work in a folder below ``folder``."""
    return [path.name for path in Path("/proc").glob("[0-9]*") if _works_in(path, folder)]


def _works_in(process: Path, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return (process / "cwd").readlink().is_relative_to(folder)
    return False


def test_a_node_answers_only_who_has_a_certificate_of_the_cluster(cluster: Cluster, kubelet: Kubelet) -> None:
    """Whoever it answers runs programs on this machine, and others may reach its address."""
    node = cluster.api.get("/api/v1/nodes/node-a").json()["status"]
    assert node["addresses"][0]["address"] == kubelet.address
    url = f"https://{kubelet.address}:{node['daemonEndpoints']['kubeletEndpoint']['Port']}"
    trust = ssl.create_default_context(cafile=str(cluster.folder / "ca.crt"))
    with httpx2.Client(verify=trust, trust_env=False) as stranger, pytest.raises(httpx2.TransportError):
        stranger.get(f"{url}/stats/summary")
    trust.load_cert_chain(cluster.folder / "kubelet-client.crt", cluster.folder / "kubelet-client.key")
    with httpx2.Client(verify=trust, trust_env=False) as server:
        assert server.get(f"{url}/stats/summary").json()["node"] == {"nodeName": "node-a"}
