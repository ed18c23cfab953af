"""A plan shows what a cluster refuses and makes anew, before anything is sent, and waits for none that is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path

import pytest

from reconciler.engines.kubernetes.reading import trial
from reconciler.model.record import Health
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.support.command_sandbox import DB, GVC, SETTINGS, WITH_PASSWORD, CommandSandbox, workload

WRITES = ("create", "update", "patch", "delete")
API = "kind: identity\nname: api\n---\n" + WITH_PASSWORD.replace(":1", ":2")
PARALLEL = DB.replace("  containers:", "  rolloutOptions: {scalingPolicy: Parallel}\n  containers:")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeApiServer]:
    """A cluster whose controllers act after each write."""
    with fake_api_server(tmp_path / "cluster") as server:
        server.run_controllers()
        yield server


@pytest.fixture
def sandbox(tmp_path: Path, server: FakeApiServer) -> CommandSandbox:
    """The shop, applied at one location on the cluster."""
    cluster = f"  here: {{engine: kubernetes, cluster: {{kubeconfig: {server.kubeconfig}}}}}"
    settings = SETTINGS.replace("  here: {engine: recorded}", cluster) + "images: {registry: registry.example.com}\n"
    sandbox = CommandSandbox(tmp_path / "sandbox", settings=settings)
    sandbox.applied()
    server.clear_requests()
    return sandbox


def list_trial_lines(sandbox: CommandSandbox) -> list[str]:
    """What the plan says of the location."""
    beginnings = ("Refused at", "Replaced at", "Not asked at", "… and")
    return [line for line in sandbox.run("plan").out.splitlines() if line.startswith(beginnings)]


def list_real_writes(server: FakeApiServer) -> list[str]:
    """The requests that changed something."""
    return [
        repr(request) for request in server.requests if request.verb in WRITES and "dryRun" not in str(request.query)
    ]


def test_what_is_applied_has_an_empty_plan_and_no_drift(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    server.converge()
    plan = sandbox.run("plan", "--format", "json")
    assert (plan.code, plan.json["steps"]) == (0, [])
    drift = sandbox.run("drift", "-o", "json")
    assert (drift.code, drift.json["items"]) == (0, [])


def test_drift_on_a_cluster_is_found_without_a_daemon(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    server.converge()
    server.delete("Service", "web", "shop")
    drift = sandbox.run("drift", "-o", "json")
    assert [item["key"] for item in drift.json["items"]] == ["workload/shop/web"]
    server.stop()
    result = sandbox.run("drift")
    assert result.code == 1
    assert "not every location can be observed: here: ClusterUnreachable" in result.err


def test_a_plan_that_the_cluster_accepts_has_no_line_about_it(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    sandbox.commit({"shop/web.yaml": workload("web", "2"), "shop/api.yaml": API})
    result = sandbox.run("plan", "--format", "json")
    assert (result.code, result.json["refused"], result.json["replaced"]) == (0, [], [])
    assert result.json["not_asked"] == []
    assert server.requests_of("patch", "deployments.apps")
    assert list_real_writes(server) == []


def test_a_plan_shows_the_words_of_a_webhook_at_the_resource(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    server.admission.deny("Deployment", "images need a digest")
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    [line] = list_trial_lines(sandbox)
    assert line.startswith("Refused at here: workload/shop/web: apply Deployment web in the namespace shop: ")
    assert "images need a digest" in line
    result = sandbox.run("plan", "--format", "json")
    assert result.code == 1
    [refused] = result.json["refused"]
    assert (refused["key"], refused["location"]) == ("workload/shop/web", "here")
    assert f"`{line}`" in sandbox.run("plan", "--format", "markdown").out
    assert list_real_writes(server) == []


def test_a_plan_names_the_other_manager_of_a_field(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    edited = deepcopy(server.object("Deployment", "web", "shop"))
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:other"
    server.update(edited)
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    [line] = list_trial_lines(sandbox)
    assert line.startswith("Refused at here: workload/shop/web: ")
    assert "kubectl-edit" in line


def test_a_plan_shows_what_is_made_anew_and_that_its_pods_stay(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    sandbox.commit({"shop/db.yaml": PARALLEL})
    expected = (
        "Replaced at here: workload/shop/db: StatefulSet db in the namespace shop is deleted and made again, since "
        "spec.podManagementPolicy of it cannot change; its pods and volumes stay"
    )
    assert list_trial_lines(sandbox) == [expected]
    assert sandbox.run("plan").code == 0
    assert list_real_writes(server) == []


def test_a_plan_shows_from_the_records_what_is_made_anew_where_no_cluster_answers(
    sandbox: CommandSandbox, server: FakeApiServer
) -> None:
    server.stop()
    sandbox.commit({"shop/db.yaml": PARALLEL})
    replaced, unasked = list_trial_lines(sandbox)
    assert "since spec.podManagementPolicy of it cannot change" in replaced
    assert unasked.startswith("Not asked at here: ClusterUnreachable: ")


def test_a_plan_shows_a_namespace_of_others(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}})
    sandbox.commit({"lab/gvc.yaml": GVC.replace("shop", "lab"), "lab/web.yaml": workload("web")})
    [line] = list_trial_lines(sandbox)
    assert line.startswith("Refused at here: gvc/lab: Namespace lab exists, and others made it")


def test_a_new_namespace_is_no_trouble(sandbox: CommandSandbox) -> None:
    sandbox.commit({"lab/gvc.yaml": GVC.replace("shop", "lab"), "lab/web.yaml": workload("web")})
    assert list_trial_lines(sandbox) == []


def test_a_new_namespace_whose_login_is_not_applied_yet_is_no_refusal(sandbox: CommandSandbox) -> None:
    with sandbox.settings.open("a") as settings:
        settings.write("external: [//secret/outside]\n")
    gvc = GVC.replace("shop", "lab").replace("spec:", "spec:\n  pullSecretLinks: [//secret/outside]")
    sandbox.commit({"lab/gvc.yaml": gvc, "lab/web.yaml": workload("web")})
    assert "workload/lab/web" in sandbox.run("plan").out
    assert list_trial_lines(sandbox) == []


def test_a_plan_names_volumes_that_cannot_grow(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    server.converge()
    assert server.objects("PersistentVolumeClaim", "shop")
    sandbox.commit({"shop/db.yaml": DB.replace("initialCapacity: 10", "initialCapacity: 20")})
    lines = [line for line in list_trial_lines(sandbox) if line.startswith("Refused")]
    assert lines
    assert all("does not allow volume expansion" in line for line in lines)
    assert lines[0].startswith("Refused at here: volumeset/shop/data: ")


def test_a_plan_waits_for_no_cluster_that_does_not_answer(
    sandbox: CommandSandbox, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "PATIENCE", 0.5)
    server.stall("*", -1)
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    [line] = list_trial_lines(sandbox)
    assert line.startswith("Not asked at here: ClusterUnreachable: ")
    assert re.search(r"does not answer within 0(\.[1-5])? s", line), "that is all the time that is left of its patience"
    server.heal()


def write_outage(sandbox: CommandSandbox, health: Health) -> None:
    """What a daemon writes that does not reach the location; ``health`` is that of what is there, as it is now."""
    with closing(Records.open(sandbox.state / FILE)) as records:
        records.events.append("location/here", Reason.LOCATION_UNREACHABLE, "ClusterUnreachable: no route to host")
        for record in list(records.applied.items_at("here", "kubernetes")):
            records.applied.update_seen(record.key, "here", health, record.state)


def test_a_plan_does_not_ask_where_the_daemon_gets_no_answer(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    write_outage(sandbox, Health.UNKNOWN)
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    [line] = list_trial_lines(sandbox)
    assert line.startswith("Not asked at here: the daemon does not reach it since ")
    assert line.endswith("no route to host")
    assert server.requests == []
    with closing(Records.open(sandbox.state / FILE)) as records:
        records.events.append("location/here", Reason.LOCATION_REACHABLE, "its engine answers again")
    assert list_trial_lines(sandbox) == []
    assert server.requests_of("patch")


def test_a_plan_asks_again_once_a_daemon_that_began_anew_has_an_answer(
    sandbox: CommandSandbox, server: FakeApiServer
) -> None:
    write_outage(sandbox, Health.HEALTHY)
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    assert list_trial_lines(sandbox) == []
    assert server.requests_of("patch")


def test_a_plan_asks_about_a_part_of_many_resources_and_counts_the_rest(
    sandbox: CommandSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "MOST_ASKED", 2)
    sandbox.commit({f"shop/{name}.yaml": workload(name, "2") for name in ("one", "two", "three")})
    assert list_trial_lines(sandbox) == ["Not asked at here: 1 resources are left out: a plan asks about 2 at most"]


def test_a_plan_without_clusters_has_no_word_about_them(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    assert "refused" not in sandbox.run("plan", "--format", "json").json
