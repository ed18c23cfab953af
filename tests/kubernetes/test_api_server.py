"""What the fake of kube-apiserver can be made to do; `test_exchanges.py` has what it does like the real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.kubernetes.fake.sessions import SessionScript

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeApiServer]:
    """A server of its own for each test."""
    with fake_api_server(tmp_path) as server:
        yield server


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[httpx2.Client]:
    """A client as the kubeconfig describes it."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    token = Path(config["users"][0]["user"]["tokenFile"]).read_text()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=config["clusters"][0]["cluster"]["server"], headers=headers, trust_env=False) as client:
        yield client


def deployment(name: str = "web", **spec: Any) -> dict[str, Any]:
    """A Deployment of two pods."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx:1"}]}}
    content = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": content}


def config_map(name: str, **data: str) -> dict[str, Any]:
    """A ConfigMap."""
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def read_events(response: httpx2.Response, count: int) -> list[dict[str, Any]]:
    """The next events of a watch."""
    lines = response.iter_lines()
    return [json.loads(next(lines)) for _ in range(count)]


def test_scripted_failures_end_after_so_many_times(server: FakeApiServer, client: httpx2.Client) -> None:
    server.fail("list deployments.apps", 429, times=2, retry_after=3)
    server.fail("GET /api/v1/*", 503, times=1)
    answers = [client.get(DEPLOYMENTS) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "3"
    assert client.get(CONFIG_MAPS).json()["reason"] == "ServiceUnavailable"
    assert client.get(CONFIG_MAPS).status_code == 200
    assert [entry.status for entry in server.requests_of("list", "deployments.apps")] == [429, 429, 200]


def test_a_list_is_cut_and_a_connection_dropped(server: FakeApiServer, client: httpx2.Client) -> None:
    server.cut("list configmaps")
    server.drop("list configmaps")
    for _ in range(2):
        with pytest.raises(httpx2.TransportError):
            client.get(CONFIG_MAPS)
    assert client.get(CONFIG_MAPS).status_code == 200


def test_a_request_that_is_never_answered_times_out(server: FakeApiServer, client: httpx2.Client) -> None:
    server.stall("list configmaps")
    with pytest.raises(httpx2.ReadTimeout):
        client.get(CONFIG_MAPS, timeout=0.1)


def test_a_stopped_server_refuses_connections_and_has_its_objects_after_a_start(
    server: FakeApiServer, client: httpx2.Client
) -> None:
    server.create(config_map("a", x="1"))
    server.stop()
    with pytest.raises(httpx2.ConnectError):
        client.get(CONFIG_MAPS)
    server.start()
    assert [item["metadata"]["name"] for item in client.get(CONFIG_MAPS).json()["items"]] == ["a"]
    version = client.get(CONFIG_MAPS).json()["metadata"]["resourceVersion"]
    server.restart(lose=True)
    assert client.get(CONFIG_MAPS).json()["items"] == []
    with client.stream("GET", CONFIG_MAPS, params={"watch": "true", "resourceVersion": version}) as watch:
        (event,) = read_events(watch, 1)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_half_open_watch_sends_nothing_until_it_is_resumed(server: FakeApiServer, client: httpx2.Client) -> None:
    version = client.get(CONFIG_MAPS).json()["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
    with client.stream("GET", CONFIG_MAPS, params=query) as watch:
        server.freeze_watches()
        server.create(config_map("a"))
        server.resume_watches()
        server.send_bookmarks()
        events = read_events(watch, 2)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]


def test_watches_end_by_410_by_closing_and_by_an_expired_token(server: FakeApiServer, client: httpx2.Client) -> None:
    query = {"watch": "true", "resourceVersion": "0", "fieldSelector": "metadata.name=none"}
    with client.stream("GET", CONFIG_MAPS, params=query) as watch:
        server.expire_watches()
        (event,) = read_events(watch, 1)
    assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")
    for end in (server.close_watches, server.expire_token):
        with client.stream("GET", CONFIG_MAPS, params=query) as watch:
            end()
            assert watch.read() == b""
    assert client.get(CONFIG_MAPS).status_code == 401
    server.accept_token("fresh")
    assert client.get(CONFIG_MAPS, headers={"Authorization": "Bearer fresh"}).status_code == 200


def test_forbidden_kinds_are_refused_in_the_words_of_the_server(server: FakeApiServer, client: httpx2.Client) -> None:
    server.authorizer.forbid("secrets", "list", "default")
    answer = client.get("/api/v1/namespaces/default/secrets").json()
    assert answer["message"] == (
        'secrets is forbidden: User "system:serviceaccount:reconciler:reconciler" cannot list resource "secrets" in '
        'API group "" in the namespace "default"'
    )
    asked = {"verb": "list", "resource": "secrets", "namespace": "default"}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = client.post(path, json=body | {"spec": {"resourceAttributes": asked}}).json()
    assert review["status"] == {"allowed": False}


def test_a_custom_resource_is_found_only_while_it_is_installed(server: FakeApiServer, client: httpx2.Client) -> None:
    path = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"
    assert client.get(path).status_code == 404
    server.install("Gateway")
    assert client.get(path).json()["items"] == []
    body = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "a"}}
    assert client.post(path, json=body | {"spec": {"x": {"y": [1]}}}).json()["metadata"]["generation"] == 1
    server.remove_crd("gateway.networking.k8s.io", "gateways")
    assert client.get(path).status_code == 404


def test_webhooks_change_deny_and_time_out(server: FakeApiServer, client: httpx2.Client) -> None:
    def inject(value: dict[str, Any]) -> None:
        value["spec"]["template"]["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})

    server.admission.mutate("Deployment", inject)
    created = client.post(DEPLOYMENTS, json=deployment()).json()
    assert [one["name"] for one in created["spec"]["template"]["spec"]["containers"]] == ["main", "proxy"]
    server.admission.deny("ConfigMap", "no", 403, "policy.example.com")
    answer = client.post(CONFIG_MAPS, json=config_map("a"))
    assert answer.status_code == 403
    assert answer.json()["message"] == 'admission webhook "policy.example.com" denied the request: no'
    server.admission.time_out("Secret")
    answer = client.post("/api/v1/namespaces/default/secrets", json={"metadata": {"name": "a"}})
    assert answer.status_code == 500
    assert "context deadline exceeded" in answer.json()["message"]


def test_a_quota_is_exceeded_in_the_words_of_the_server(server: FakeApiServer, client: httpx2.Client) -> None:
    quota = {"metadata": {"name": "few", "namespace": "default"}, "spec": {"hard": {"count/deployments.apps": "1"}}}
    server.create({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    assert client.post(DEPLOYMENTS, json=deployment("a")).status_code == 201
    answer = client.post(DEPLOYMENTS, json=deployment("b"))
    assert (answer.status_code, answer.json()["message"]) == (
        403,
        'deployments.apps "b" is forbidden: exceeded quota: few, requested: count/deployments.apps=1, '
        "used: count/deployments.apps=1, limited: count/deployments.apps=1",
    )


def test_a_deployment_rolls_out_and_goes_with_its_pods(server: FakeApiServer, client: httpx2.Client) -> None:
    client.post(DEPLOYMENTS, json=deployment())
    server.converge()
    status = server.object("Deployment", "web")["status"]
    assert (status["observedGeneration"], status["readyReplicas"]) == (1, 2)
    server.pods.script("default/web-*", "Crash", "no such file", exit_code=127)
    changed = deployment()
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2"
    client.put(f"{DEPLOYMENTS}/web", json=changed)
    server.converge()
    states = [pod["status"]["containerStatuses"][0].get("lastState") for pod in server.objects("Pod")]
    assert {"exitCode": 127, "reason": "Error"}.items() <= states[-1]["terminated"].items() or states[0]
    client.delete(f"{DEPLOYMENTS}/web")
    server.converge()
    assert server.objects("Pod") == server.objects("ReplicaSet") == []


def test_members_of_a_stateful_set_have_claims_that_stay(server: FakeApiServer, client: httpx2.Client) -> None:
    body = deployment("db", serviceName="db")
    body["kind"] = "StatefulSet"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    client.post("/apis/apps/v1/namespaces/default/statefulsets", json=body)
    server.converge()
    assert [pod["metadata"]["name"] for pod in server.objects("Pod")] == ["db-0", "db-1"]
    client.delete("/apis/apps/v1/namespaces/default/statefulsets/db")
    server.converge()
    claims = server.objects("PersistentVolumeClaim")
    assert [(claim["metadata"]["name"], claim["status"]["phase"]) for claim in claims] == [
        ("data-db-0", "Bound"),
        ("data-db-1", "Bound"),
    ]


def test_a_cron_job_runs_when_the_test_wants_it(server: FakeApiServer, client: httpx2.Client) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "job:1"}]}}
    spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"backoffLimit": 0, "template": template}}}
    server.create(
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "default"}, "spec": spec}
    )
    server.pods.script("default/c-*", "Failed", "out of luck", exit_code=3)
    job = server.run_cron_job("default", "c")
    server.converge()
    conditions = server.object("Job", job)["status"]["conditions"]
    assert [condition["type"] for condition in conditions] == ["FailureTarget", "Failed"]


def test_a_namespace_ends_after_its_content_unless_it_is_stuck(server: FakeApiServer, client: httpx2.Client) -> None:
    server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    client.post("/apis/apps/v1/namespaces/a/deployments", json=deployment())
    server.converge()
    server.hold_namespace("a")
    assert client.delete("/api/v1/namespaces/a").json()["status"]["phase"] == "Terminating"
    server.converge()
    assert server.objects("Pod", "a") == []
    answer = client.post("/api/v1/namespaces/a/configmaps", json={"metadata": {"name": "x"}})
    assert answer.json()["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    server.release_namespace("a")
    server.converge()
    assert client.get("/api/v1/namespaces/a").status_code == 404


def test_a_log_is_followed_until_it_ends(server: FakeApiServer, client: httpx2.Client) -> None:
    client.post(DEPLOYMENTS, json=deployment(replicas=1))
    server.converge()
    name = server.objects("Pod")[0]["metadata"]["name"]
    server.write_log("default", name, "one", "two")
    path = f"/api/v1/namespaces/default/pods/{name}/log"
    assert client.get(path, params={"tailLines": "1"}).text == "two\n"
    with client.stream("GET", path, params={"follow": "true"}) as answer:
        lines = answer.iter_lines()
        assert [next(lines), next(lines)] == ["one", "two"]
        writer = threading.Thread(target=lambda: server.write_log("default", name, "three", ended=True))
        writer.start()
        assert [*lines] == ["three"]
        writer.join()


def test_a_quota_that_pods_exceed_is_a_condition_of_their_deployment(
    server: FakeApiServer, client: httpx2.Client
) -> None:
    quota = {"metadata": {"name": "few", "namespace": "default"}, "spec": {"hard": {"pods": "1"}}}
    server.create({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    client.post(DEPLOYMENTS, json=deployment())
    server.converge()
    conditions = {entry["type"]: entry for entry in server.object("Deployment", "web")["status"]["conditions"]}
    assert "exceeded quota: few, requested: pods=1" in conditions["ReplicaFailure"]["message"]
    assert [event["reason"] for event in server.objects("Event")] == ["FailedCreate"]


def test_trouble_of_pods_has_events(server: FakeApiServer, client: httpx2.Client) -> None:
    server.pods.script("default/*", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")
    client.post(DEPLOYMENTS, json=deployment(replicas=1))
    server.converge()
    (pod,) = server.objects("Pod")
    query = {"fieldSelector": f"involvedObject.uid={pod['metadata']['uid']}"}
    (event,) = client.get("/api/v1/namespaces/default/events", params=query).json()["items"]
    assert (event["reason"], event["message"]) == ("FailedScheduling", "0/3 nodes are available: 3 Insufficient cpu.")
    server.pods.script("default/*", "Running")
    server.converge()
    assert server.object("Deployment", "web")["status"]["readyReplicas"] == 1


def test_a_session_repeats_its_input_and_ends_with_a_status(server: FakeApiServer, client: httpx2.Client) -> None:
    client.post(DEPLOYMENTS, json=deployment(replicas=1))
    server.converge()
    name = server.objects("Pod")[0]["metadata"]["name"]
    server.sessions.script("default/*", SessionScript(b"hello ", exit_code=3, echo=True))
    url = f"ws://127.0.0.1:{server.port}/api/v1/namespaces/default/pods/{name}/exec?command=sh&stdin=true&stdout=true"
    headers = {"Authorization": f"Bearer {server.token}"}
    options: dict[str, Any] = {"additional_headers": headers, "subprotocols": ["v5.channel.k8s.io"], "proxy": None}
    with connect(url, **options) as session:
        assert session.recv() == b"\x01hello "
        session.send(b'\x04{"Width": 80, "Height": 24}')
        session.send(b"\x00world")
        assert session.recv() == b"\x01world"
        session.send(b"\xff\x00")
        status = json.loads(session.recv()[1:])
    assert (status["reason"], status["details"]["causes"][0]["message"]) == ("NonZeroExitCode", "3")
    assert server.sessions.past[0].sizes == [{"Width": 80, "Height": 24}]
    with pytest.raises(InvalidStatus, match="HTTP 404"), connect(url.replace(name, "none"), **options):
        pass


def test_a_page_of_a_forgotten_moment_has_a_token_that_goes_on(server: FakeApiServer, client: httpx2.Client) -> None:
    for name in "abc":
        server.create(config_map(name))
    first = client.get(CONFIG_MAPS, params={"limit": "1"}).json()
    server.create(config_map("aa"))
    server.compact()
    answer = client.get(CONFIG_MAPS, params={"limit": "9", "continue": first["metadata"]["continue"]})
    assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")
    token = answer.json()["metadata"]["continue"]
    rest = client.get(CONFIG_MAPS, params={"limit": "9", "continue": token}).json()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["aa", "b", "c"]


def test_controllers_act_by_themselves_where_a_test_wants_it(server: FakeApiServer, client: httpx2.Client) -> None:
    server.run_controllers()
    client.post(DEPLOYMENTS, json=deployment())
    assert client.get(f"{DEPLOYMENTS}/web").json()["status"]["readyReplicas"] == 2
    server.scale("Deployment", "web", "default", 3)
    assert client.get(f"{DEPLOYMENTS}/web").json()["status"]["readyReplicas"] == 3
    owners = client.get(f"{DEPLOYMENTS}/web").json()["metadata"]["managedFields"]
    assert [owner["manager"] for owner in owners if owner.get("subresource") == "scale"] == ["kube-controller-manager"]


def test_a_clock_that_is_wrong_shows_in_every_answer(server: FakeApiServer, client: httpx2.Client) -> None:
    server.skew_clock(-86400.0 * 365)
    created = client.post(CONFIG_MAPS, json=config_map("a"))
    year = created.json()["metadata"]["creationTimestamp"][:4]
    assert year in created.headers["date"]
    assert int(year) < datetime.now(UTC).year
