"""Trouble of a real cluster, in its words: what it refuses of steps and plans, and what a manifest cannot get."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lightkube.config.kubeconfig import KubeConfig

from reconciler.engines.kubernetes import engine
from reconciler.engines.kubernetes.access import list_rights
from reconciler.engines.kubernetes.client.objects import HTTP_ROUTE
from reconciler.engines.kubernetes.engine import NEEDED
from reconciler.engines.kubernetes.reading.trial import try_steps
from reconciler.engines.plugin import PlanTrial
from reconciler.engines.protocol import Outcome, Result
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.settings import LocationSettings, Settings
from tests.engines.kubernetes.engine_kit import WEB, change_body, make_step
from tests.engines.kubernetes.test_engine_hostile import hostile_bodies
from tests.kubernetes.cluster.client import Object
from tests.kubernetes.cluster.definitions import GATEWAY
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.webhooks import Refused, describe_webhook
from tests.kubernetes.real_harness import RealHarness
from tests.kubernetes.rights import ACCOUNT

pytestmark = pytest.mark.cluster


def test_what_a_manifest_asks_for_beyond_its_workload_reaches_no_pod(harness: RealHarness) -> None:
    """Pod Security refuses pods with a part of their node."""
    harness.start_web()
    label = "pod-security.kubernetes.io/enforce=baseline"
    harness.cluster.kubectl("label", "namespace", harness.space, label)
    for version, body in enumerate(hostile_bodies().values(), 2):
        outcome = harness.apply(make_step(body, version))[WEB]
        if outcome.result is Result.APPLIED:
            harness.wait_for_health()
        form = "jsonpath={.items[*].spec.serviceAccountName} {.items[*].metadata.namespace}"
        assert set(harness.kubectl("get", "pods", "--output", form).split()) <= {"workload-web", harness.space}
    assert "kube-system" not in harness.kubectl("get", "deployments,services,secrets", "--output", "name")
    applied = harness.cluster.kubectl("get", "deployments,services,secrets,pods", "--namespace", "kube-system")
    assert "web" not in applied


def test_a_server_that_starts_again_is_named_and_loses_nothing(harness: RealHarness) -> None:
    harness.start_web()
    before = harness.versions()
    with harness.cluster.stopped_api_server():
        outcome = harness.apply_web(2, image="nginx:2")
        assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.CLUSTER_UNREACHABLE)
        assert harness.cluster.url in outcome.message
    harness.until(lambda: not harness.engine._mirror.failures(), "all watches work")
    assert harness.versions() == before
    harness.until(lambda: harness.apply_web(2, image="nginx:2").result is Result.APPLIED, "it is applied")
    harness.wait_for_health()
    harness.assert_no_drift(2)


def test_a_quota_and_a_webhook_refuse_in_their_words(harness: RealHarness, kubelet: Kubelet) -> None:
    harness.start_web()
    harness.kubectl("create", "quota", "few", "--hard=count/services=1")
    harness.until(lambda: "1/1" in harness.kubectl("get", "quota", "few", "--no-headers"), "the quota is counted")
    second = {**change_body(), "name": "second"}
    outcome = harness.apply(make_step(second))["workload/shop/second"]
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.QUOTA_EXCEEDED)
    assert "exceeded quota: few" in outcome.message
    assert "second" not in harness.kubectl("get", "deployments", "--output", "name")
    name = f"deny-{harness.cluster.minor.replace('.', '-')}"
    kubelet.webhooks[name] = deny
    harness.cluster.apply(describe_webhook("Validating", name, kubelet.port, harness.space, ["deployments"]))
    try:
        # The server asks it a moment later.
        outcome = harness.until(lambda: find_refusal(harness), "the webhook refuses")
        assert (outcome.reason, "images need a digest" in outcome.message) == (Reason.ADMISSION_REFUSED, True)
    finally:
        harness.cluster.kubectl("delete", "validatingwebhookconfiguration", f"{name}.test.reconciler")


def test_a_webhook_that_does_not_answer_is_named_until_it_does(harness: RealHarness, kubelet: Kubelet) -> None:
    harness.start_web()
    before = harness.versions()
    name = f"slow-{harness.cluster.minor.replace('.', '-')}"
    kubelet.webhooks[name] = lambda request: []
    kubelet.webhook_delays[name] = 3.0  # of one that it may take
    harness.cluster.apply(describe_webhook("Validating", name, kubelet.port, harness.space, ["deployments"]))
    try:
        outcome = harness.until(lambda: find_refusal(harness), "the server asks it")
        assert (outcome.reason, outcome.retry) == (Reason.ADMISSION_REFUSED, True)
        assert f'failed calling webhook "{name}.test.reconciler"' in outcome.message
        del kubelet.webhook_delays[name]
        version = harness.image + 1
        again = harness.until(lambda: apply_version(harness, version), "it is applied once the webhook answers")
        assert again.result is Result.APPLIED
    finally:
        harness.cluster.kubectl("delete", "validatingwebhookconfiguration", f"{name}.test.reconciler")
    harness.wait_for_health()
    assert list_surroundings(harness.versions()) == list_surroundings(before)


def list_surroundings(versions: dict[str, str]) -> dict[str, str]:
    """The versions of what another image does not change."""
    kinds = ("Secret/", "Service/", "ServiceAccount/", "NetworkPolicy/")
    return {name: version for name, version in versions.items() if name.startswith(kinds)}


def apply_version(harness: RealHarness, version: int) -> Outcome | None:
    """What the image of a version ends with, once it is applied."""
    outcome = harness.apply_web(version, image=f"nginx:{version}")
    return outcome if outcome.result is Result.APPLIED else None


@pytest.mark.parametrize("origin", ["a kubeconfig", "the pod"])
def test_a_token_that_ends_is_read_again_from_its_file(
    harness: RealHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    """As the kubelet renews that of a service account in the pod of the daemon."""
    cluster, file = harness.cluster, tmp_path / "token"
    file.write_text(cluster.token_of(ACCOUNT, ACCOUNT, seconds=20.0))
    kubeconfig = cluster.write_kubeconfig("token-file", {"tokenFile": str(file)}) if origin != "the pod" else None
    if kubeconfig is None:
        (tmp_path / "namespace").write_text(ACCOUNT)
        (tmp_path / "ca.crt").write_bytes((cluster.folder / "ca.crt").read_bytes())
        monkeypatch.setattr(KubeConfig.from_service_account.__func__, "__defaults__", (tmp_path,))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", cluster.url.rpartition(":")[2])
    harness.bound = msgspec.structs.replace(harness.bound, kubeconfig=kubeconfig)
    harness.begin_anew()
    harness.start_web()
    before = harness.versions()
    outcome = harness.until(lambda: find_refusal(harness), "the token ends")
    assert outcome.reason is Reason.CREDENTIALS_REFUSED
    assert "renew the credentials that the kubeconfig names" in outcome.message
    file.write_text(cluster.token_of(ACCOUNT, ACCOUNT))
    harness.until(lambda: apply_version(harness, harness.image + 1), "the new token works")
    harness.wait_for_health()
    assert not harness.engine._mirror.failures()
    assert {name for name in before if not name.startswith("Pod/")} <= harness.versions().keys()


def test_a_kind_that_is_installed_later_is_used_and_one_that_goes_is_missed(
    harness: RealHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "DISCOVERY_SECONDS", 0.2)
    definitions = [f"{addition.plural}.{addition.group}" for addition in GATEWAY]
    harness.cluster.kubectl("delete", "customresourcedefinition", "--ignore-not-found", *definitions)
    harness.bound = msgspec.structs.replace(harness.bound, gateway="public/edge")
    harness.begin_anew()
    harness.start_web()
    assert not harness.engine._desired.features.gateway_api
    try:
        harness.cluster.install(*GATEWAY)
        harness.until(lambda: harness.engine._desired.features.gateway_api, "the kind is noticed")
        harness.until(lambda: harness.engine._mirror.is_complete(HTTP_ROUTE), "it is watched")
        harness.assert_no_drift()
    finally:
        harness.cluster.kubectl("delete", "customresourcedefinition", "--ignore-not-found", *definitions)
    harness.until(lambda: not harness.engine._desired.features.gateway_api, "its end is noticed")
    harness.until(lambda: apply_version(harness, 2), "a workload can be changed")
    harness.until(lambda: harness.delete_web().result is Result.APPLIED, "and deleted")


def deny(request: Object) -> list[Object]:
    raise Refused("images need a digest")


def find_refusal(harness: RealHarness) -> Outcome | None:
    """What a changed image ends with, once it is refused."""
    harness.image += 1
    outcome = harness.apply_web(harness.image, image=f"nginx:{harness.image}")
    return outcome if outcome.result is Result.FAILED else None


def test_a_kind_that_the_account_may_not_read_is_a_condition(harness: RealHarness) -> None:
    """Services alone: the rest goes on."""
    harness.start_web()
    limited = harness.cluster.kubeconfig_of("limited")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "limited"},
        "rules": [
            {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
            for right in list_rights()
            if (right.group, right.resource) != ("", "services")
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "limited"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited"},
        "subjects": [{"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    harness.cluster.apply(role, binding)
    harness.bound = msgspec.structs.replace(harness.bound, kubeconfig=limited)
    harness.do(harness.engine.close())
    harness.until(lambda: opens_anew(harness), "the role is there")
    conditions = json.loads(harness.see_web().state)["status"]["conditions"]
    [condition] = [condition for condition in conditions if condition["type"] == "ObjectsUnknown"]
    assert condition["reason"] == "ClusterForbidden"
    assert 'cannot list resource "services"' in condition["message"]
    harness.assert_no_drift()


def opens_anew(harness: RealHarness) -> bool:
    """Whether another engine can read what it needs."""
    harness.do(harness.engine.close())
    harness.engine = harness._make_engine()
    with suppress(EngineError):
        harness.open()
        return harness.engine._mirror.explain_unknown(NEEDED) is None
    return False


def test_a_plan_has_the_words_of_the_server_and_changes_nothing(harness: RealHarness) -> None:
    body = change_body()
    body["spec"]["type"] = "stateful"
    assert harness.apply(make_step(body))[WEB].result is Result.APPLIED
    harness.wait_for_health()
    before = harness.versions()
    anew = deepcopy(body)
    anew["spec"]["rolloutOptions"] = {"scalingPolicy": "Parallel"}
    trial = try_body(harness, anew)
    assert (trial.refusals, trial.unasked) == ((), ())
    [replacement] = trial.replacements
    assert "StatefulSet web" in replacement.message
    assert "spec.podManagementPolicy of it cannot change" in replacement.message
    wrong = deepcopy(body)
    wrong["spec"]["containers"][0]["ports"][0]["number"] = 99_999
    trial = try_body(harness, wrong)
    assert (trial.replacements, trial.unasked) == ((), ())
    assert any("99999" in refusal.message for refusal in trial.refusals)
    image = deepcopy(body)
    image["spec"]["containers"][0]["image"] = "nginx:2"
    assert try_body(harness, image) == PlanTrial()
    assert harness.versions() == before


def try_body(harness: RealHarness, body: dict[str, Any]) -> PlanTrial:
    """What the cluster says of a step with ``body``."""
    bound = LocationSettings("kubernetes", cluster=harness.bound)
    settings = Settings("acme", (), harness.path, locations={"here": bound})
    step = msgspec.structs.replace(make_step(body, 2), location="here")
    return try_steps(settings, harness.records, [step], "kubernetes")
