"""Nothing is lost on a cluster, whatever fails: what is not known stays, and what others made is theirs."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.kubernetes import mirror
from reconciler.engines.protocol import Result
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import SecretValue
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import (
    NAME,
    SPACE,
    WEB,
    ClusterHarness,
    change_body,
    engine_on_fake,
    make_step,
)
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.support.plans import plan


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "FIRST_RETRY", 0.02)
    monkeypatch.setattr(mirror, "LAST_RETRY", 0.1)
    monkeypatch.setattr(mirror, "QUIET_SECONDS", 0.1)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ClusterHarness]:
    with engine_on_fake(tmp_path) as harness:
        yield harness


def start_web(harness: ClusterHarness) -> None:
    assert harness.apply_web().result is Result.APPLIED
    harness.wait_for_health()


def list_objects(server: FakeApiServer) -> dict[tuple[str, str, str], str]:
    """The uids of all objects of the namespace ``shop``."""
    kinds = ("Deployment", "StatefulSet", "Service", "Secret", "ServiceAccount", "NetworkPolicy", "Pod")
    return {
        (kind, SPACE, value["metadata"]["name"]): value["metadata"]["uid"]
        for kind in kinds
        for value in server.objects(kind, SPACE)
    }


LIST_TROUBLE: dict[str, Callable[[FakeApiServer, str], None]] = {
    "fails": lambda server, kind: server.fail(f"list {kind}", 500, -1),
    "is partial": lambda server, kind: server.cut(f"list {kind}", 0.6, -1),
    "is forbidden": lambda server, kind: server.authorizer.forbid(kind, "list"),
    "is gone": lambda server, kind: server.fail(f"list {kind}", 410, -1),
    "is dropped": lambda server, kind: server.drop(f"list {kind}", -1),
    "is unknown": lambda server, kind: server.fail(f"list {kind}", 404, -1),
}


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [*((trouble, "deployments.apps") for trouble in LIST_TROUBLE), ("is forbidden", "secrets"), ("fails", "pods")],
)
def test_a_list_that_fails_deletes_nothing(harness: ClusterHarness, trouble: str, kind: str) -> None:
    start_web(harness)
    before = list_objects(harness.server)
    LIST_TROUBLE[trouble](harness.server, kind)
    with suppress(EngineError):
        harness.begin_anew()
    harness.server.clear_requests()
    if kind != "secrets":
        with pytest.raises(EngineError):
            harness.see()
    assert harness.delete_web().result is not Result.APPLIED
    assert harness.server.requests_of("delete") == []
    assert list_objects(harness.server) == before
    harness.server.heal()
    harness.until(lambda: knows_all(harness), "all is known again")
    assert harness.see_web().digest == "digest-1"
    harness.until(lambda: harness.delete_web().result is Result.APPLIED, "it is deleted")


def knows_all(harness: ClusterHarness) -> bool:
    with suppress(EngineError):
        harness.see()
        return not harness.engine._mirror.failures() and harness.engine._works
    return False


def test_a_watch_that_is_old_concludes_nothing(harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "STALE_SECONDS", 0.1)
    start_web(harness)
    harness.server.stop()
    harness.until(lambda: bool(harness.engine._mirror.failures()), "the watches fail")
    harness.rest(0.3)
    with pytest.raises(EngineError) as raised:
        harness.see()
    assert raised.value.reason is Reason.CLUSTER_UNREACHABLE
    assert harness.delete_web().result is not Result.APPLIED
    harness.server.start()
    harness.until(lambda: knows_all(harness), "all is known again")
    assert harness.see_web().digest == "digest-1"


def test_a_namespace_that_does_not_end_is_named(harness: ClusterHarness) -> None:
    start_web(harness)
    harness.server.hold_namespace(SPACE)
    harness.server.delete("Namespace", SPACE)
    harness.until(lambda: WEB not in harness.see(), "its objects are gone")
    outcome = harness.apply_web()
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.TERMINATING)
    assert "the namespace shop is being deleted" in outcome.message
    harness.server.release_namespace(SPACE)
    harness.server.converge()
    harness.until(lambda: harness.apply_web().result is Result.APPLIED, "it is made again")
    harness.wait_for_health()


def test_a_finalizer_that_stays_is_named(harness: ClusterHarness) -> None:
    start_web(harness)
    harness.server.patch("Deployment", NAME, SPACE, {"metadata": {"finalizers": ["example.com/backup"]}})
    harness.catch_up()
    harness.until(lambda: "finalizers" in harness.delete_web().message, "the message names it")
    outcome = harness.delete_web()
    assert (outcome.result, outcome.reason) == (Result.WAITING, Reason.TERMINATING)
    assert "Deployment web in the namespace shop waits for example.com/backup" in outcome.message
    harness.server.patch("Deployment", NAME, SPACE, {"metadata": {"finalizers": None}})
    harness.until(lambda: harness.delete_web().result is Result.APPLIED, "it is deleted")


def test_a_service_that_must_be_made_anew_and_does_not_end_is_named(
    harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.engines.kubernetes.applying._ROOM_SECONDS", 0.2)
    start_web(harness)
    harness.server.patch("Service", NAME, SPACE, {"metadata": {"finalizers": ["example.com/balancer"]}})
    body = change_body()
    body["spec"]["type"] = "stateful"
    outcome = harness.apply(make_step(body, 2))[WEB]
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.TERMINATING)
    assert "Service web" in outcome.message


def test_what_the_server_refuses_under_any_name_costs_no_stateful_set(harness: ClusterHarness) -> None:
    body = change_body()
    body["spec"]["type"] = "stateful"
    assert harness.apply(make_step(body))[WEB].result is Result.APPLIED
    harness.wait_for_health()
    before = list_objects(harness.server)
    harness.server.admission.deny("StatefulSet", "no such thing here", 422)
    changed = deepcopy(body)
    changed["spec"]["containers"][0]["image"] = "nginx:2"
    assert harness.apply(make_step(changed, 2))[WEB].result is Result.FAILED
    assert list_objects(harness.server) == before


def test_two_daemons_on_one_cluster_leave_each_other_alone(harness: ClusterHarness, tmp_path: Path) -> None:
    start_web(harness)
    before = list_objects(harness.server)
    other = ClusterHarness(tmp_path / "other", harness.server, instance="other")
    try:
        other.open()
        assert other.see() == {}
        outcome = other.apply_web()
        assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.FOREIGN_OBJECT)
        assert "the instance acme" in outcome.message
        adopting = change_body()
        adopting["tags"] = {"reconciler/adopt": "true"}
        assert other.apply(make_step(adopting))[WEB].reason is Reason.FOREIGN_OBJECT
        assert other.delete_web().result is not Result.FAILED
        assert other.server.requests_of("delete") == []
    finally:
        other.close()
    assert list_objects(harness.server) == before
    harness.catch_up()
    assert harness.see_web().digest == "digest-1"


def test_volumes_of_another_daemon_are_not_shown_or_deleted(harness: ClusterHarness, tmp_path: Path) -> None:
    start_web(harness)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-db-0",
            "namespace": SPACE,
            "labels": {"app.kubernetes.io/managed-by": "reconciler", "reconciler.dev/location": "here"},
            "annotations": {"reconciler.dev/key": "volumeset/shop/data"},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
    }
    harness.server.create(claim)
    other = ClusterHarness(tmp_path / "other", harness.server, instance="other")
    try:
        other.open()
        assert other.see() == {}
        volumes = Step(Action.DELETE, Key(Kind.VOLUMESET, SPACE, "data"), "here", "kubernetes", 1, "digest-1", b"{}")
        other.apply(volumes)
    finally:
        other.close()
    assert harness.names("PersistentVolumeClaim") == ["data-db-0"]


def test_lost_records_restart_nothing(harness: ClusterHarness, tmp_path: Path) -> None:
    env = [{"name": "PASSWORD", "value": "platform://secret/db.password"}]
    harness.secrets["db"] = SecretValue("dictionary", {"password": "correct-horse"})
    harness.secrets["login"] = SecretValue("docker", '{"auths": {"registry.example": {"auth": "YTpi"}}}')
    harness.record_gvc(spec={"pullSecretLinks": ["//secret/login"]})
    assert harness.apply_web(3, env=env).result is Result.APPLIED
    harness.wait_for_health()
    before = list_objects(harness.server)
    assert any("pull-" in name for _, _, name in before)
    generation = harness.server.object("Deployment", NAME, SPACE)["metadata"]["generation"]
    other = ClusterHarness(tmp_path / "other", harness.server)
    other.secrets = harness.secrets
    other.record_gvc(spec={"pullSecretLinks": ["//secret/login"]})
    try:
        other.open()
        seen = other.see_web()
        assert (seen.digest, seen.version) == ("digest-3", 3)
        other.server.clear_requests()
        assert other.apply(make_step(change_body(env=env), 3))[WEB].result is Result.APPLIED
        assert other.writes() == []
        other.wait_for_health()
        assert other.see_web().version == 3
    finally:
        other.close()
    assert list_objects(harness.server) == before
    assert harness.server.object("Deployment", NAME, SPACE)["metadata"]["generation"] == generation


FOREIGN = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": NAME,
        "namespace": SPACE,
        "labels": {"owner": "someone"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    },
    "spec": {"selector": {"old": "yes"}, "ports": [{"name": "old", "port": 9, "protocol": "TCP"}]},
}


def test_a_foreign_object_is_refused_and_stays(harness: ClusterHarness) -> None:
    harness.apply(make_step({**change_body(), "name": "first"}))
    harness.server.create(FOREIGN, "kubectl-client-side-apply")
    outcome = harness.apply_web()
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.FOREIGN_OBJECT)
    assert "reconciler/adopt" in outcome.message
    assert harness.server.object("Service", NAME, SPACE)["spec"]["selector"] == {"old": "yes"}
    assert NAME not in harness.names("Deployment")


def test_an_adopted_object_loses_the_fields_of_its_tool(harness: ClusterHarness) -> None:
    harness.apply(make_step({**change_body(), "name": "first"}))
    harness.server.create(FOREIGN, "kubectl-client-side-apply")
    body = change_body()
    body["tags"] = {"reconciler/adopt": "true"}
    outcome = harness.apply(make_step(body))[WEB]
    assert (outcome.result, outcome.message) == (Result.APPLIED, outcome.message)
    service = harness.server.object("Service", NAME, SPACE)
    assert "old" not in service["spec"]["selector"]
    assert [port["port"] for port in service["spec"]["ports"]] == [8080]
    assert "owner" not in service["metadata"]["labels"]
    assert "kubectl.kubernetes.io/last-applied-configuration" not in service["metadata"]["annotations"]
    harness.wait_for_health()
    assert harness.see_web().digest == "digest-1"


OTHER_LOCATION = {
    "app.kubernetes.io/managed-by": "reconciler",
    "reconciler.dev/instance": "acme",
    "reconciler.dev/location": "elsewhere",
}
"""The labels of objects of this daemon at another location, which anybody can set."""


def create_stranger(harness: ClusterHarness, name: str) -> dict[str, Any]:
    """A Service that names the workload ``web``, and another location."""
    metadata = {"name": name, "namespace": SPACE, "labels": OTHER_LOCATION, "annotations": {"reconciler.dev/key": WEB}}
    spec = {"ports": [{"port": 1}], "selector": {"old": "yes"}}
    return harness.server.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


def test_an_object_that_names_another_location_is_never_taken_over(harness: ClusterHarness) -> None:
    harness.apply(make_step({**change_body(), "name": "first"}))
    before = create_stranger(harness, NAME)
    adopting = change_body()
    adopting["tags"] = {"reconciler/adopt": "true"}
    for body in (change_body(), adopting):
        outcome = harness.apply(make_step(body))[WEB]
        assert outcome.reason is Reason.FOREIGN_OBJECT
        assert "it belongs to the instance acme at elsewhere; delete or rename it" in outcome.message
        assert "reconciler/adopt" not in outcome.message
    assert harness.server.object("Service", NAME, SPACE) == before
    assert NAME not in harness.names("Deployment")


def test_what_names_another_location_is_never_deleted(harness: ClusterHarness) -> None:
    start_web(harness)
    before = create_stranger(harness, "web-old")
    assert harness.apply_web(2, image="nginx:2").result is Result.APPLIED
    harness.wait_for_health()
    harness.until(lambda: harness.delete_web().message == "", "the workload is gone")
    assert harness.names("Deployment") == []
    assert harness.server.objects("Service", SPACE) == [before]


def test_a_tag_takes_over_no_object_of_another_workload(harness: ClusterHarness) -> None:
    start_web(harness)
    stolen = harness.server.object("Service", NAME, SPACE)
    harness.server.patch(
        "Service", NAME, SPACE, {"metadata": {"annotations": {"reconciler.dev/key": "workload/shop/victim"}}}
    )
    harness.catch_up()
    body = change_body(image="nginx:2")
    body["tags"] = {"reconciler/adopt": "true"}
    assert harness.apply(make_step(body, 2))[WEB].reason is Reason.FOREIGN_OBJECT
    assert harness.server.object("Service", NAME, SPACE)["spec"] == stolen["spec"]


COUNT = 30


def many_steps(version: int) -> list[Any]:
    """Workloads of five objects and more each."""
    steps = []
    for number in range(COUNT):
        body = change_body(env=[{"name": "A", "value": str(version)}])
        body["name"] = f"web-{number:02}"
        steps.append(make_step(body, version))
    return steps


def end_state(server: FakeApiServer) -> list[str]:
    """All that was applied, without what differs between two runs: addresses, and the digests of Secrets."""
    state = []
    for kind in ("Namespace", "ConfigMap", "Deployment", "Service", "Secret", "ServiceAccount", "NetworkPolicy"):
        for value in server.objects(kind):
            metadata = value["metadata"]
            if "reconciler.dev/key" in metadata.get("annotations", {}):
                spec = {name: part for name, part in value.get("spec", {}).items() if not name.startswith("clusterIP")}
                text = json.dumps([kind, metadata["name"], metadata["labels"], spec], sort_keys=True)
                state.append(re.sub(r"-env-[0-9a-f]{24}", "-env-DIGEST", text))
    return state


@pytest.mark.slow
@pytest.mark.parametrize("most", [5, 20])
def test_an_engine_cancelled_again_and_again_ends_as_one_that_was_not(tmp_path: Path, most: int) -> None:
    chance = random.Random(7)
    states = []
    for kills in (0, most):
        with fake_api_server(tmp_path / f"cluster-{kills}") as server:
            harness = ClusterHarness(tmp_path / f"engine-{kills}", server)
            harness.open()
            for _ in range(kills):
                harness.do(break_off(harness, chance.randrange(5, 120)))
                harness.begin_anew()
                harness.do(harness.executor().replay())
            outcomes = harness.apply(*many_steps(2))
            assert {outcome.result for outcome in outcomes.values()} == {Result.APPLIED}
            harness.catch_up()
            server.clear_requests()
            harness.apply(*many_steps(2))
            assert harness.writes() == []
            states.append(end_state(server))
            harness.close()
    assert len(states[0]) >= 150
    assert states[0] == states[1]


async def break_off(harness: ClusterHarness, requests: int) -> None:
    """Cancel a run amid its requests, as the end of the process does."""
    harness.server.clear_requests()
    run = asyncio.create_task(harness.run(plan(*many_steps(2))))
    while len(harness.server.requests) < requests and not run.done():
        await asyncio.sleep(0)
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run


SOME = 8
"""Workloads that are new together."""


def apply_first(harness: ClusterHarness) -> None:
    """Apply a workload of the same shape as many others."""
    body = {**change_body(env=[{"name": "A", "value": "1"}]), "name": "first"}
    assert harness.apply(make_step(body))["workload/shop/first"].result is Result.APPLIED
    harness.server.clear_requests()


def test_of_many_new_workloads_only_the_first_are_tried(harness: ClusterHarness) -> None:
    apply_first(harness)
    outcomes = harness.apply(*many_steps(1)[:SOME])
    assert {outcome.result for outcome in outcomes.values()} == {Result.APPLIED}
    tried = {
        (request.resource, request.path) for request in harness.server.requests_of("patch") if "dryRun" in request.query
    }
    counts = Counter(resource for resource, _ in tried)
    # Once fewer than `MANY` are left, or after a time-out, all objects are tried.
    assert max(counts["deployments.apps"], counts["services"], counts["poddisruptionbudgets.policy"]) <= SOME / 2
    harness.catch_up()
    assert {seen.digest for seen in harness.see().values()} == {"digest-1"}
    harness.server.clear_requests()
    harness.apply(*many_steps(1)[:SOME])
    assert harness.writes() == []


@pytest.mark.parametrize("labels", [{}, OTHER_LOCATION], ids=["none", "of another location"])
def test_a_foreign_object_stays_among_many_new_ones(harness: ClusterHarness, labels: dict[str, str]) -> None:
    apply_first(harness)
    name = "web-07"
    metadata = {"name": name, "namespace": SPACE, "labels": labels}
    spec = {"ports": [{"port": 1}]}
    harness.server.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    before = harness.server.object("Service", name, SPACE)
    outcomes = harness.apply(*many_steps(1)[:SOME])
    failed = {key: outcome.reason for key, outcome in outcomes.items() if outcome.result is not Result.APPLIED}
    assert failed == {f"workload/shop/{name}": Reason.FOREIGN_OBJECT}
    assert harness.server.object("Service", name, SPACE) == before
    assert name not in harness.names("Deployment")


@pytest.mark.parametrize("refused", ["Service", "Deployment"])
def test_what_was_not_tried_is_taken_back_after_a_refusal(harness: ClusterHarness, refused: str) -> None:
    apply_first(harness)
    kinds = ("ServiceAccount", "Secret", "NetworkPolicy", "Service", "PodDisruptionBudget", "Deployment")
    before = {kind: harness.names(kind) for kind in kinds}
    harness.server.admission.deny(refused, "no more of these")
    outcomes = harness.apply(*many_steps(1)[:SOME])
    assert {outcome.reason for outcome in outcomes.values()} == {Reason.ADMISSION_REFUSED}
    assert all("no more of these" in outcome.message for outcome in outcomes.values())
    assert {kind: harness.names(kind) for kind in kinds} == before
    harness.server.clear_requests()
    harness.apply(*many_steps(1)[:SOME])
    # What was refused is tried from then on.
    assert [write for write in harness.writes() if "dryRun" not in write] == []
    harness.server.admission.clear_webhooks()
    outcomes = harness.apply(*many_steps(1)[:SOME])
    assert {outcome.result for outcome in outcomes.values()} == {Result.APPLIED}
