"""Trouble of an API server: each has its own reason with the words of the server, and ends by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.kubernetes import engine, mirror
from reconciler.engines.kubernetes.client import api, credentials
from reconciler.engines.kubernetes.engine import KubernetesEngine
from reconciler.engines.protocol import Outcome, Result
from reconciler.engines.workload import reachability
from reconciler.errors import EngineError
from reconciler.model.kinds.secret import SecretValue
from reconciler.planning.plan import Step
from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import NAME, SPACE, WEB, ClusterHarness, change_body, engine_on_fake, make_step
from tests.kubernetes.api_server import fake_api_server


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "FIRST_RETRY", 0.02)
    monkeypatch.setattr(mirror, "LAST_RETRY", 0.1)
    monkeypatch.setattr(mirror, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(engine, "FIRST_RETRY", 0.05)
    monkeypatch.setattr(engine, "DISCOVERY_SECONDS", 0.1)
    monkeypatch.setattr(engine, "TIMES_SECONDS", 0.1)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ClusterHarness]:
    with engine_on_fake(tmp_path) as harness:
        assert harness.apply_web().result is Result.APPLIED
        harness.wait_for_health()
        yield harness


def assert_recovers(harness: ClusterHarness, version: int = 2) -> None:
    """The step succeeds at last, and all is well."""
    harness.until(lambda: apply_image(harness, version).result is Result.APPLIED, "the step succeeds")
    harness.until(lambda: not harness.engine._mirror.failures(), "all watches work")
    harness.wait_for_health()
    assert harness.see_web().digest == f"digest-{version}"


def apply_image(harness: ClusterHarness, version: int = 2) -> Outcome:
    return harness.apply_web(version, image=f"nginx:{version}")


def test_a_server_that_is_gone(harness: ClusterHarness) -> None:
    harness.server.stop()
    outcome = apply_image(harness)
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.CLUSTER_UNREACHABLE)
    assert harness.server.url in outcome.message
    harness.server.start()
    assert_recovers(harness)


def test_a_server_that_is_slow(harness: ClusterHarness) -> None:
    harness.server.delay("patch *", 0.05, -1)
    assert_recovers(harness)


def test_a_server_that_does_not_answer(harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "CONNECT_SECONDS", 1.5)
    harness.begin_anew()
    harness.server.stall("patch deployments.apps", -1)
    outcome = apply_image(harness)
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.CLUSTER_UNREACHABLE)
    harness.server.heal()
    assert_recovers(harness)


@pytest.fixture
def impatience(harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the next start of the engine on, a request has 1 s, and one that took it is noted."""
    assert harness.engine
    monkeypatch.setattr(credentials, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(reachability, "PATIENCE_SECONDS", 0.8)
    monkeypatch.setattr(reachability, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(reachability, "LAST_PAUSE", 0.1)


def make_steps(count: int) -> list[Step]:
    """A step for each of so many workloads."""
    return [make_step({**change_body(), "name": f"web-{number}"}) for number in range(count)]


def find_tried(harness: ClusterHarness) -> set[str]:
    """The workloads of ``make_steps`` of which objects were requested."""
    return {name for request in harness.server.requests for name in re.findall(r"/(web-\d+)", request.path)}


@pytest.mark.usefixtures("impatience")
def test_many_steps_wait_once_for_a_server_that_does_not_answer(harness: ClusterHarness) -> None:
    harness.begin_anew()
    many = make_steps(3 * KubernetesEngine.parallel)
    harness.server.stall("*", -1)
    harness.server.clear_requests()
    outcomes = harness.apply(*many)
    assert {(outcome.reason, outcome.retry) for outcome in outcomes.values()} == {(Reason.CLUSTER_UNREACHABLE, True)}
    assert 0 < len(find_tried(harness)) <= KubernetesEngine.parallel, "those that had begun"
    harness.server.clear_requests()
    outcomes = harness.apply(*many)
    assert {outcome.reason for outcome in outcomes.values()} == {Reason.CLUSTER_UNREACHABLE}
    assert [request for request in harness.server.requests if "web-" in request.name] == [], (
        "the next run waits for none"
    )
    harness.server.heal()
    harness.until(lambda: apply_image(harness).result is Result.APPLIED, "a step succeeds")


@pytest.mark.usefixtures("impatience")
def test_many_steps_wait_once_for_a_server_that_never_answered(harness: ClusterHarness) -> None:
    harness.do(harness.engine.close())
    harness.engine = harness._make_engine()
    harness.server.stall("*", -1)
    with pytest.raises(EngineError, match="does not answer"):
        harness.open()
    harness.server.clear_requests()
    outcomes = harness.apply(*make_steps(20))
    assert {outcome.reason for outcome in outcomes.values()} == {Reason.CLUSTER_UNREACHABLE}
    with pytest.raises(EngineError, match="does not answer"):
        harness.see()
    assert len(harness.server.requests) <= 4, "questions of the one that asks meanwhile"
    harness.server.heal()
    assert_recovers(harness)


def test_a_request_that_hangs_alone_holds_up_no_other(harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "CONNECT_SECONDS", 6.0)
    harness.begin_anew()
    harness.server.stall("PATCH *deployments/web-0", -1)
    first, *others = make_steps(6)
    failed = harness.apply(first)["workload/shop/web-0"]
    assert (failed.result, failed.reason) == (Result.FAILED, Reason.CLUSTER_UNREACHABLE)
    assert {outcome.result for outcome in harness.apply(*others).values()} == {Result.APPLIED}


def test_requests_that_end_together_with_one_that_fails(harness: ClusterHarness) -> None:
    harness.server.drop("patch services", 1)
    harness.server.delay("patch *", 0.05, 20)
    steps = []
    for number in range(6):
        body = change_body()
        body["name"] = f"web-{number}"
        steps.append(make_step(body))
    outcomes = harness.apply(*steps)
    assert {outcome.reason for outcome in outcomes.values()} <= {None, Reason.CLUSTER_UNREACHABLE, Reason.APPLIED}
    harness.until(
        lambda: {outcome.result for outcome in harness.apply(*steps).values()} == {Result.APPLIED}, "all succeed"
    )


@pytest.mark.parametrize("lose", [False, True])
def test_a_server_that_starts_again(harness: ClusterHarness, lose: bool) -> None:
    harness.server.restart(lose=lose)
    if lose:
        harness.server.run_controllers()
        harness.until(lambda: WEB not in harness.see(), "the loss is noticed")
    assert_recovers(harness)


def test_a_server_that_was_restored_from_a_backup(harness: ClusterHarness) -> None:
    state = harness.server.state
    harness.server.stop()
    state.storage.revision += 1000
    harness.server.start()
    harness.server.patch("Deployment", NAME, SPACE, {"metadata": {"annotations": {"a": "b"}}})
    harness.catch_up()
    harness.server.fail("watch *", 504, -1, message="Too large resource version: 9000, current: 3")
    harness.server.close_watches()
    harness.until(lambda: bool(harness.server.requests_of("watch")), "watches begin")
    harness.server.clear_requests()
    harness.until(lambda: bool(harness.server.requests_of("list", "deployments.apps")), "all is listed again")
    harness.server.heal()
    assert_recovers(harness)


def test_watches_whose_history_is_gone(harness: ClusterHarness) -> None:
    harness.server.freeze_watches()
    harness.server.delete("Service", NAME, SPACE)
    harness.server.expire_watches()
    harness.server.resume_watches()
    harness.until(lambda: harness.see_web().digest == "", "what vanished meanwhile is noticed")
    assert_recovers(harness)


def test_a_watch_that_is_half_open(harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "SILENCE_SECONDS", 0.3)
    harness.begin_anew()
    harness.server.freeze_watches()
    harness.server.delete("Service", NAME, SPACE)
    harness.server.clear_requests()
    harness.until(lambda: bool(harness.server.requests_of("watch", "services")), "the watch begins anew")
    harness.server.resume_watches()
    harness.until(lambda: harness.see_web().digest == "", "what vanished meanwhile is noticed")


def test_a_token_that_expires_during_a_watch_is_read_again(harness: ClusterHarness) -> None:
    harness.server.expire_token()
    outcome = apply_image(harness)
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.CREDENTIALS_REFUSED)
    harness.until(lambda: bool(harness.engine._mirror.failures()), "the watches fail")
    (harness.server.path / "token").write_text("a-new-token")
    harness.server.accept_token("a-new-token")
    assert_recovers(harness)


def test_a_kind_that_is_forbidden(harness: ClusterHarness) -> None:
    harness.server.authorizer.forbid("deployments.apps", "patch")
    outcome = apply_image(harness)
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.CLUSTER_FORBIDDEN)
    assert 'cannot patch resource "deployments"' in outcome.message
    assert "reconciler doctor" in outcome.message
    harness.server.heal()
    assert_recovers(harness)


def read_unknown(harness: ClusterHarness) -> list[Any]:
    """The conditions of ``web`` about kinds that the cluster does not show."""
    conditions = json.loads(harness.see_web().state)["status"]["conditions"]
    return [condition for condition in conditions if condition["type"] == "ObjectsUnknown"]


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_kind_that_cannot_be_read_is_a_condition_and_no_drift(
    harness: ClusterHarness, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "MOMENT_SECONDS", 0.2)
    harness.server.authorizer.forbid("services", verb)
    harness.begin_anew()
    [condition] = harness.until(lambda: read_unknown(harness), "the condition is there")
    assert condition["reason"] == "ClusterForbidden"
    assert f'cannot {verb} resource "services"' in condition["message"]
    assert harness.see_web().digest == "digest-1", "what cannot be read is not missing"
    assert apply_image(harness).result is Result.APPLIED
    harness.server.clear_requests()
    harness.rest(0.3)
    assert len(harness.server.requests_of(verb, "services")) < 20, "it is tried with longer and longer waits"
    harness.server.heal()
    harness.until(lambda: not read_unknown(harness), "it ends by itself")
    assert_recovers(harness, 3)


def test_a_kind_that_cannot_be_read_is_reported_as_a_change(
    harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "MOMENT_SECONDS", 0.2)
    harness.server.authorizer.forbid("networkpolicies.networking.k8s.io", "watch")
    harness.server.close_watches()
    changes = harness.engine.changes()
    harness.until(lambda: harness.do(anext(changes)) == frozenset() and bool(read_unknown(harness)), "all is looked at")


def test_a_kind_that_no_workload_has_is_no_condition(harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "MOMENT_SECONDS", 0.0)
    harness.server.authorizer.forbid("cronjobs.batch", "watch")
    harness.server.close_watches()
    harness.until(lambda: bool(harness.engine._mirror.list_unknown()), "the watch fails")
    assert read_unknown(harness) == []


def test_a_quota_that_is_used_up(harness: ClusterHarness) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": SPACE},
        "spec": {"hard": {"count/services": "1"}},
    }
    harness.server.create(quota)
    body = change_body()
    body["name"] = "second"
    outcome = harness.apply(make_step(body))["workload/shop/second"]
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.QUOTA_EXCEEDED)
    assert "exceeded quota: few" in outcome.message
    assert "second" not in harness.names("Deployment")
    harness.server.delete("ResourceQuota", "few", SPACE)
    harness.until(lambda: harness.apply(make_step(body))["workload/shop/second"].result is Result.APPLIED, "it starts")


@pytest.mark.parametrize("trouble", ["denies", "does not answer"])
def test_a_webhook_that(harness: ClusterHarness, trouble: str) -> None:
    if trouble == "denies":
        harness.server.admission.deny("Deployment", "images need a digest")
    else:
        harness.server.admission.time_out("Deployment")
    services = harness.names("Secret")
    outcome = apply_image(harness)
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.ADMISSION_REFUSED)
    assert ("images need a digest" if trouble == "denies" else "context deadline exceeded") in outcome.message
    assert harness.names("Secret") == services, "nothing is changed before all was tried"
    harness.server.heal()
    assert_recovers(harness)


def test_a_server_that_puts_requests_off(harness: ClusterHarness) -> None:
    harness.server.fail("patch deployments.apps", 429, 2, retry_after=1)
    assert_recovers(harness)
    assert [request.status for request in harness.server.requests_of("patch", "deployments.apps")].count(429) == 2


def test_a_kind_that_is_installed_later_and_removed_again(harness: ClusterHarness) -> None:
    assert not harness.engine._desired.features.gateway_api
    harness.server.install("HTTPRoute")
    harness.until(lambda: harness.engine._desired.features.gateway_api, "the kind is noticed")
    harness.until(lambda: bool(harness.server.requests_of("watch", "httproutes.gateway.networking.k8s.io")), "watched")
    harness.server.remove_crd("gateway.networking.k8s.io", "httproutes")
    harness.until(lambda: not harness.engine._desired.features.gateway_api, "its end is noticed")
    harness.until(lambda: harness.delete_web().result is Result.APPLIED, "a workload can be deleted")


@pytest.mark.parametrize("seconds", [-86400, 86400])
def test_a_clock_that_is_wrong(harness: ClusterHarness, seconds: int) -> None:
    harness.server.skew_clock(seconds)
    assert_recovers(harness)


def test_another_location_goes_on(harness: ClusterHarness, tmp_path: Path) -> None:
    with fake_api_server(tmp_path / "other-cluster") as server:
        server.run_controllers()
        other = ClusterHarness(tmp_path / "other", server, location="there")
        other.open()
        try:
            harness.server.stop()
            assert apply_image(harness).reason is Reason.CLUSTER_UNREACHABLE
            assert other.apply_web().result is Result.APPLIED
            other.wait_for_health()
        finally:
            other.close()
    harness.server.start()
    assert_recovers(harness)


def test_a_changed_secret_that_cannot_be_applied_is_tried_again(harness: ClusterHarness) -> None:
    env = [{"name": "PASSWORD", "value": "platform://secret/db.password"}]
    harness.secrets["db"] = SecretValue("dictionary", {"password": "correct-horse"})
    assert harness.apply_web(2, env=env).result is Result.APPLIED
    harness.wait_for_health()
    [former] = harness.until(lambda: names if len(names := list_variables(harness)) == 1 else [], "one is left")
    harness.secrets["db"] = SecretValue("dictionary", {"password": "battery-staple"})
    harness.server.fail("patch deployments.apps", 500, -1)
    harness.engine.refresh()
    event = harness.until(harness.engine.news, "the failure is reported")[0]
    assert "ClusterFailed" in event.message
    harness.server.heal()
    harness.until(lambda: former not in harness.names("Secret"), "the new value is used, and the former one is deleted")
    harness.wait_for_health()
    assert len(list_variables(harness)) == 1


def list_variables(harness: ClusterHarness) -> list[str]:
    """The Secrets with variables."""
    return [name for name in harness.names("Secret") if "-env-" in name]


def test_an_execution_on_demand_goes_with_its_workload(harness: ClusterHarness) -> None:
    body = change_body(ports=None)
    body["spec"] = {"type": "cron", "containers": body["spec"]["containers"], "job": {"schedule": "0 0 1 1 *"}}
    body["name"] = "report"
    step = make_step(body)
    harness.apply(step)
    harness.do(harness.engine.command(step.key, "runCronWorkload", {"location": "here"}, "one"))
    harness.do(harness.engine.command(step.key, "runCronWorkload", {"location": "here"}, "one"))
    assert len(harness.names("Job")) == 1
    gone = make_step(body, action=type(step.action)("delete"))
    harness.until(lambda: harness.apply(gone)[str(step.key)].result is Result.APPLIED, "it is deleted")
    assert harness.names("Job") == []


def test_a_dry_run_that_fails_is_never_in_order(harness: ClusterHarness) -> None:
    harness.server.fail("patch *", 500, -1)
    assert apply_image(harness).reason is Reason.CLUSTER_FAILED
    with suppress(EngineError):
        assert harness.see_web().digest != "digest-2"
