"""The engine on a real cluster: what others change is mended, what others made stays, and nothing is lost.

Its account has the rights of the manifest alone.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.kubernetes.applying import ObjectApplier
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import ALWAYS_SERVED
from reconciler.engines.kubernetes.mirror import ClusterMirror
from reconciler.engines.kubernetes.ownership import Owner
from reconciler.engines.protocol import Outcome, Result
from reconciler.planning.plan import Action
from reconciler.reasons import Reason
from reconciler.settings import ClusterSettings
from tests.engines.kubernetes.engine_kit import WEB, change_body, make_step
from tests.engines.kubernetes.rendering.test_cases import setup_of
from tests.engines.kubernetes.test_engine_cases import APPLIED, INSTANCE, list_batches
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.real_harness import RealHarness
from tests.kubernetes.rights import give_rights
from tests.support.kubernetes import BUILT_IN
from tests.support.plans import plan

pytestmark = pytest.mark.cluster

CLIENT_SIDE = "kubectl.kubernetes.io/last-applied-configuration"


def test_a_second_step_changes_nothing(harness: RealHarness) -> None:
    harness.start_web()
    before = harness.versions()
    harness.begin_anew()
    harness.assert_no_drift()
    harness.apply_web()
    assert harness.versions() == before


def test_a_field_that_the_manifest_loses_goes(harness: RealHarness) -> None:
    harness.start_web()
    harness.apply_web(2, ports=None, env=None, cpu="1", memory="1Gi")
    assert "service/web" not in harness.kubectl("get", "services", "--output", "name")
    assert "containerPort" not in harness.kubectl("get", "deployment", "web", "--output", "json")
    harness.wait_for_health()
    harness.assert_no_drift(2)


def test_an_edited_image_is_a_conflict(harness: RealHarness) -> None:
    harness.start_web()
    harness.kubectl("set", "image", "deployment/web", "main=nginx:evil")
    harness.until(harness.has_drift, "the drift is noticed")
    outcome = harness.apply_web()
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.FIELD_CONFLICT)
    assert "kubectl" in outcome.message


@pytest.mark.parametrize("label", ["reconciler.dev/instance", "reconciler.dev/location"])
@pytest.mark.parametrize("kind", ["deployment", "service"])
def test_a_removed_label_is_set_again(harness: RealHarness, kind: str, label: str) -> None:
    harness.start_web()
    harness.kubectl("label", kind, "web", f"{label}-")
    harness.until(harness.has_drift, "the drift is noticed")
    outcome = harness.apply_web()
    assert (outcome.result, outcome.reason) == (Result.APPLIED, Reason.APPLIED)
    assert label in harness.kubectl("get", kind, "web", "--output", "jsonpath={.metadata.labels}")
    harness.assert_no_drift()


@pytest.mark.parametrize("kind", ["service", "deployment", "networkpolicy"])
def test_a_deleted_object_is_made_again(harness: RealHarness, kind: str) -> None:
    harness.start_web()
    harness.kubectl("delete", kind, "web")
    harness.until(harness.has_drift, "the drift is noticed")
    assert harness.apply_web().result is Result.APPLIED
    harness.kubectl("get", kind, "web")
    harness.wait_for_health()
    harness.assert_no_drift()


def test_a_service_changes_between_its_types(harness: RealHarness) -> None:
    stateful = change_body()
    stateful["spec"]["type"] = "stateful"
    for version, body in enumerate((change_body(), stateful, change_body()), 1):
        step = make_step(body, version, Action.UPDATE if version == 1 else Action.REPLACE)
        harness.until(lambda step=step: harness.apply(step)[WEB].result is Result.APPLIED, "it is replaced")
        harness.wait_for_health()
        address = harness.kubectl("get", "service", "web", "--output", "jsonpath={.spec.clusterIP}")
        assert (address == "None") == (version == 2)
        harness.assert_no_drift(version)


def test_an_immutable_field_of_a_stateful_set_restarts_no_pod_of_an_other(harness: RealHarness) -> None:
    body = change_body()
    body["spec"]["type"] = "stateful"
    assert harness.apply(make_step(body))[WEB].result is Result.APPLIED
    harness.wait_for_health()
    changed = deepcopy(body)
    changed["spec"]["rolloutOptions"] = {"scalingPolicy": "Parallel"}
    assert harness.apply(make_step(changed, 2))[WEB].result is Result.APPLIED
    harness.wait_for_health()
    harness.assert_no_drift(2)


def test_what_is_refused_under_any_name_costs_no_stateful_set(harness: RealHarness) -> None:
    body = change_body()
    body["spec"]["type"] = "stateful"
    assert harness.apply(make_step(body))[WEB].result is Result.APPLIED
    harness.wait_for_health()
    before = harness.versions()
    wrong = deepcopy(body)
    wrong["spec"]["containers"][0]["ports"][0]["number"] = 99_999
    outcome = harness.apply(make_step(wrong, 2))[WEB]
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.OBJECT_REFUSED)
    assert {name: mark for name, mark in harness.versions().items() if not name.startswith("Secret")}.items() <= (
        before.items()
    )


def test_an_object_of_kubectl_is_refused_or_adopted(harness: RealHarness) -> None:
    harness.apply(make_step({**change_body(), "name": "first"}))
    file = harness.path / "service.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {owner: someone}}\n"
        "spec: {selector: {old: 'yes'}, ports: [{name: old, port: 9}]}\n"
    )
    harness.kubectl("apply", "--filename", str(file))
    outcome = harness.apply_web()
    assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.FOREIGN_OBJECT)
    body = change_body()
    body["tags"] = {"reconciler/adopt": "true"}
    outcome = harness.apply(make_step(body))[WEB]
    assert outcome.result is Result.APPLIED, outcome.message
    shown = harness.kubectl("get", "service", "web", "--output", "json")
    assert '"old"' not in shown
    assert "someone" not in shown
    assert CLIENT_SIDE not in shown
    harness.wait_for_health()
    harness.assert_no_drift()


def test_finalizers_that_stay_are_named(harness: RealHarness) -> None:
    harness.start_web()
    patch = '{"metadata": {"finalizers": ["example.com/backup"]}}'
    harness.kubectl("patch", "deployment", "web", "--type", "merge", "--patch", patch)
    harness.catch_up()
    harness.until(lambda: "example.com/backup" in harness.delete_web().message, "the message names it")
    assert harness.delete_web().reason is Reason.TERMINATING
    harness.kubectl("patch", "deployment", "web", "--type", "merge", "--patch", '{"metadata": {"finalizers": null}}')
    harness.until(lambda: harness.delete_web().result is Result.APPLIED, "it is deleted")


def test_a_namespace_that_does_not_end_is_named(harness: RealHarness) -> None:
    harness.start_web()
    harness.kubectl("create", "configmap", "stuck")
    patch = '{"metadata": {"finalizers": ["example.com/backup"]}}'
    harness.kubectl("patch", "configmap", "stuck", "--type", "merge", "--patch", patch)
    harness.cluster.api.delete(f"/api/v1/namespaces/{harness.space}").raise_for_status()
    harness.until(
        lambda: "example.com/backup" in harness.apply_web().message, "the message has the words of the cluster"
    )
    assert harness.apply_web().reason is Reason.TERMINATING
    harness.kubectl("patch", "configmap", "stuck", "--type", "merge", "--patch", '{"metadata": {"finalizers": null}}')
    harness.until(lambda: harness.apply_web().result is Result.APPLIED, "it is made again")


def test_lost_records_restart_nothing(harness: RealHarness, tmp_path: Path) -> None:
    harness.start_web()
    before = harness.versions()
    other = RealHarness(tmp_path / "other", harness.cluster, harness.bound.namespace_prefix)
    try:
        other.open()
        assert (other.see_web().digest, other.see_web().version) == ("digest-1", 1)
        assert other.apply_web().result is Result.APPLIED
        other.wait_for_health()
    finally:
        other.close()
    assert harness.versions() == before


def test_a_certificate_that_expires_is_named_until_it_is_renewed(harness: RealHarness) -> None:
    harness.start_web()
    harness.do(harness.engine.close())
    with harness.cluster.expired_certificate():
        outcome = harness.until(lambda: refused(harness), "the certificate is refused")
        assert outcome.reason is Reason.CREDENTIALS_REFUSED
        assert "certificate has expired" in outcome.message
    harness.until(lambda: harness.apply_web(2, image="nginx:2").result is Result.APPLIED, "it is applied")
    harness.wait_for_health()


def refused(harness: RealHarness) -> Outcome | None:
    """What a step by a new connection ends with, once it fails."""
    outcome = harness.apply_web(2, image="nginx:2")
    harness.do(harness.engine.close())
    return outcome if outcome.result is Result.FAILED else None


COUNT = 30


def many_steps() -> list[Any]:
    """Workloads of five objects and more each."""
    steps = []
    for number in range(COUNT):
        body = change_body()
        body["name"] = f"web-{number:02}"
        body["spec"]["defaultOptions"]["autoscaling"]["minScale"] = 1
        steps.append(make_step(body))
    return steps


def test_a_daemon_killed_twenty_times_loses_nothing(harness: RealHarness) -> None:
    chance = random.Random(7)
    for _ in range(20):
        harness.do(break_off(harness, chance.random() * 0.4))
        harness.begin_anew()
        harness.do(harness.executor().replay())
    outcomes = harness.apply(*many_steps())
    assert {outcome.result for outcome in outcomes.values()} == {Result.APPLIED}
    harness.wait_for_health()
    before = harness.versions()
    assert sum(name.startswith("Deployment/") for name in before) == COUNT
    assert sum("-env-" in name for name in before) == COUNT
    harness.apply(*many_steps())
    assert harness.versions() == before


async def break_off(harness: RealHarness, seconds: float) -> None:
    """Cancel a run amid its requests, as the end of the process does."""
    run = asyncio.create_task(harness.run(plan(*many_steps())))
    await asyncio.sleep(seconds)
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run


@pytest.mark.parametrize("folder", APPLIED, ids=lambda folder: folder.name)
def test_a_case_has_no_drift(folder: Path, cluster: Cluster) -> None:
    asyncio.run(assert_no_drift(folder, cluster))


async def assert_no_drift(folder: Path, cluster: Cluster) -> None:
    namespace, clock = f"drift-{APPLIED.index(folder)}", SystemClock()
    api, owner = (
        KubeApi(ClusterSettings(kubeconfig=give_rights(cluster)), clock),
        Owner(INSTANCE, setup_of(folder).location),
    )
    batches = [(key, [move(item, namespace) for item in objects]) for key, objects in list_batches(folder)]
    batches = [(key, [item for item in objects if item["apiVersion"] in BUILT_IN]) for key, objects in batches]
    scope = Scope(owner, namespace)
    mirror = ClusterMirror(api, scope, clock, lambda key: None)
    applier = ObjectApplier(api, mirror, owner, ())
    try:
        await mirror.follow(ALWAYS_SERVED)
        for key, objects in batches:
            await applier.apply(key, objects)
        await asyncio.sleep(1.0)
        for key, objects in batches:
            assert applier.find_changes(key) == []
            assert not await applier.apply(key, objects)
            assert not await applier.prune(key, objects)
    finally:
        await mirror.close("test")
        await api.close()
        cluster.api.delete(f"/api/v1/namespaces/{namespace}")


def move(item: dict[str, Any], namespace: str) -> dict[str, Any]:
    """``item`` in another namespace."""
    place = "name" if item["kind"] == "Namespace" else "namespace"
    return {**item, "metadata": {**item["metadata"], place: namespace}}


class Scope:
    """The objects of one namespace."""

    def __init__(self, owner: Owner, namespace: str) -> None:
        self._namespace = namespace
        self.select = owner.select

    def has(self, item: Any) -> bool:
        """Whether an object is in it."""
        return self._namespace in (item.id.namespace, item.id.name)


def test_two_daemons_on_one_cluster_leave_each_other_alone(harness: RealHarness, tmp_path: Path) -> None:
    harness.start_web()
    before = harness.versions()
    prefix = harness.space.removesuffix("shop")
    other = RealHarness(tmp_path / "other", harness.cluster, prefix, instance="other")
    try:
        other.open()
        assert other.see() == {}
        adopting = change_body()
        adopting["tags"] = {"reconciler/adopt": "true"}
        for body in (change_body(), adopting):
            outcome = other.apply(make_step(body))[WEB]
            assert (outcome.result, outcome.reason) == (Result.FAILED, Reason.FOREIGN_OBJECT)
            assert "it belongs to the instance acme" in outcome.message
        assert other.delete_web().result is not Result.FAILED
    finally:
        other.close()
    harness.catch_up()
    assert harness.versions() == before
    harness.assert_no_drift()
