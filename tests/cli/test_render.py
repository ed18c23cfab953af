"""`render` and `eject`, and what `doctor` finds of a cluster: commands on a location of the Kubernetes engine."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.engines.kubernetes.access import render_access
from reconciler.model.key import Key
from reconciler.records.store import FILE, Records
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.kubernetes.rights import list_requested_rights, list_table
from tests.support.command_sandbox import SETTINGS, CommandSandbox, golden, workload

PASSWORD = "not-a-real-password"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeApiServer]:
    """A cluster whose controllers act after each write."""
    with fake_api_server(tmp_path_factory.mktemp("cluster")) as server:
        server.run_controllers()
        yield server


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, server: FakeApiServer) -> CommandSandbox:
    """A sandbox whose shop is applied, at one location on the cluster."""
    cluster = f"  here: {{engine: kubernetes, cluster: {{kubeconfig: {server.kubeconfig}}}}}"
    settings = SETTINGS.replace("  here: {engine: recorded}", cluster) + "images: {registry: registry.example.com}\n"
    sandbox = CommandSandbox(tmp_path_factory.mktemp("sandbox"), settings=settings)
    sandbox.applied()
    return sandbox


def test_the_objects_of_a_workload_are_those_on_the_cluster(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    result = sandbox.run("render", "workload/shop/api")
    assert (result.code, result.err) == (0, "")
    objects = list(yaml.safe_load_all(result.out))
    assert "Deployment" in {item["kind"] for item in objects}
    assert PASSWORD not in result.out
    assert all(set(item["data"].values()) == {"***"} for item in objects if item["kind"] == "Secret")
    [deployment] = [item for item in objects if item["kind"] == "Deployment"]
    there = server.object("Deployment", "api", "shop")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert there["metadata"]["annotations"]["reconciler.dev/source"] == "main"
    assert container["image"] == there["spec"]["template"]["spec"]["containers"][0]["image"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["workload/shop/nobody"], "there is no workload/shop/nobody"),
        (["workload/shop/api", "--location", "there"], "there is no location on a cluster"),
        ([], "--access"),
    ],
)
def test_what_has_no_objects_is_refused(sandbox: CommandSandbox, words: list[str], message: str) -> None:
    result = sandbox.run("render", *words)
    assert result.code in (1, 2)
    assert message in result.err


def test_an_ejected_directory_is_for_kubectl(sandbox: CommandSandbox, tmp_path: Path) -> None:
    directory = tmp_path / "ejected"
    result = sandbox.run("eject", str(directory))
    assert (result.code, result.err) == (0, "")
    kustomization = yaml.safe_load((directory / "kustomization.yaml").read_text())
    files = [directory / name for name in kustomization["resources"]]
    kinds = [item["kind"] for file in files for item in yaml.safe_load_all(file.read_text())]
    assert kinds[0] == "Namespace"
    assert "Secret" not in kinds
    assert {"Deployment", "StatefulSet", "Service"} <= set(kinds)
    assert sandbox.run("eject", str(directory)).code == 2
    readme = directory / "README.md"
    assert "* `shop/api-token`" in readme.read_text()
    assert stat.S_IMODE(readme.stat().st_mode) == 0o600
    whole = tmp_path / "whole"
    assert sandbox.run("eject", str(whole), "--secrets").code == 0
    assert not (whole / "README.md").exists()
    text = "".join(file.read_text() for file in whole.rglob("*.yaml"))
    assert "kind: Secret" in text
    assert {stat.S_IMODE(file.stat().st_mode) for file in whole.rglob("*.yaml")} == {0o600}


def read_objects(directory: Path) -> list[dict[str, Any]]:
    """The objects that a kustomization lists."""
    kustomization = yaml.safe_load((directory / "kustomization.yaml").read_text())
    texts = [(directory / name).read_text() for name in kustomization["resources"]]
    return [item for text in texts for item in yaml.safe_load_all(text)]


def test_what_is_ejected_restarts_nothing_and_changes_no_secret(
    sandbox: CommandSandbox, server: FakeApiServer, tmp_path: Path
) -> None:
    with closing(Records.open(sandbox.state / FILE)) as records:
        records.restarts.request(Key.parse("workload/shop/web"), "operator")
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    sandbox.applied()
    assert "1" in read_template(server.object("Deployment", "web", "shop")).values()
    assert sandbox.run("eject", str(tmp_path / "whole"), "--secrets").code == 0
    compared = set()
    for item in read_objects(tmp_path / "whole"):
        kind, metadata = item["kind"], item["metadata"]
        if kind in ("Secret", "Deployment", "StatefulSet"):
            there = server.object(kind, metadata["name"], metadata["namespace"])
            assert item.get("data") == there.get("data"), metadata["name"]
            assert read_template(item) == read_template(there), metadata["name"]
            compared.add(kind)
    assert compared == {"Secret", "Deployment", "StatefulSet"}


def read_template(item: dict[str, Any]) -> dict[str, Any]:
    """The annotations of the pods of a Deployment."""
    annotations: dict[str, Any] = item.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
    return annotations


def test_a_cluster_that_is_down_hinders_nothing_and_no_new_token_is_written(
    sandbox: CommandSandbox, server: FakeApiServer, tmp_path: Path
) -> None:
    server.stop()
    try:
        result = sandbox.run("eject", str(tmp_path / "whole"), "--secrets")
    finally:
        server.start()
    assert (result.code, result.err) == (0, "")
    secrets = [item for item in read_objects(tmp_path / "whole") if item["kind"] == "Secret"]
    assert secrets
    assert all("token" not in item["data"] for item in secrets)


def test_the_rights_are_printed_as_they_are_needed(sandbox: CommandSandbox) -> None:
    result = sandbox.run("render", "--access", "--namespace", "ops", "--account", "deployer")
    assert list(yaml.safe_load_all(result.out)) == render_access("ops", "deployer")


def test_the_rights_are_printed_without_settings(tmp_path: Path) -> None:
    plain = CommandSandbox(tmp_path)
    plain.settings.unlink()
    result = plain.run("render", "--access")
    assert (result.code, result.err) == (0, "")
    assert list(yaml.safe_load_all(result.out)) == render_access("reconciler", "reconciler")


def make_new_sandbox(path: Path, server: FakeApiServer) -> CommandSandbox:
    """A sandbox on the cluster, with a prefix of its own, where nothing is applied."""
    cluster = f"  here: {{engine: kubernetes, cluster: {{kubeconfig: {server.kubeconfig}, namespacePrefix: new-}}}}"
    settings = SETTINGS.replace("  here: {engine: recorded}", cluster) + "images: {registry: registry.example.com}\n"
    return CommandSandbox(path, settings=settings)


def test_a_workload_that_is_not_applied_yet_is_read_from_its_source(tmp_path: Path, server: FakeApiServer) -> None:
    sandbox = make_new_sandbox(tmp_path, server)
    server.clear_requests()
    planned = {key: sandbox.run("render", key) for key in ("workload/shop/api", "workload/shop/db")}
    assert {result.code for result in planned.values()} == {0}
    assert all(f"{key} is not applied at here yet; this is main@sha1:" in planned[key].err for key in planned)
    assert PASSWORD not in str(planned)
    assert not [request for request in server.requests if request.verb in ("create", "patch", "delete")]
    sandbox.applied()
    for key, before in planned.items():
        after = sandbox.run("render", key)
        assert after.err == ""
        assert strip_digests(after.out) == strip_digests(before.out)


def strip_digests(text: str) -> Any:
    """The objects in ``text`` but for Secrets, without what depends on the values of secrets and on the records."""
    objects = [item for item in yaml.safe_load_all(text) if item["kind"] != "Secret"]
    for item in objects:
        item["metadata"]["annotations"].pop("reconciler.dev/source", None)
    return yaml.safe_load(re.sub(r"-env-[0-9a-f]{24}|-file-[0-9a-f]{24}", "-DIGEST", yaml.safe_dump(objects)))


def test_what_no_source_has_and_errors_are_named(tmp_path: Path, server: FakeApiServer) -> None:
    sandbox = make_new_sandbox(tmp_path, server)
    result = sandbox.run("render", "workload/shop/nobody")
    assert (result.code, result.out) == (1, "")
    assert "there is no workload/shop/nobody" in result.err
    sandbox.commit({"shop/web.yaml": "kind: workload\nname: web\nspec: {type: odd}\n"})
    result = sandbox.run("render", "workload/shop/web")
    assert result.code == 1
    assert "has errors, so nothing of it is planned: reconciler plan" in result.err


def test_every_request_is_one_of_the_rights(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    sandbox.run("doctor")
    assert {verb for verb, _ in list_requested_rights(server)} >= {"list", "watch", "create", "patch"}
    assert list_requested_rights(server) <= list_table()


def test_doctor_names_missing_rights_and_a_cluster_that_is_down(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    assert "gives all rights" in sandbox.run("doctor").out
    server.authorizer.forbid("services", "patch")
    assert "may not patch of services" in sandbox.run("doctor").out
    server.heal()
    server.stop()
    result = sandbox.run("doctor")
    assert result.code == 1
    assert "does not answer" in result.out
    server.start()


def test_a_plan_foresees_what_the_cluster_will_not_enforce(sandbox: CommandSandbox) -> None:
    manifest = workload("slow").replace(
        "spec:", "spec:\n  defaultOptions: {autoscaling: {metric: latency, target: 50}}"
    )
    sandbox.commit({"shop/slow.yaml": manifest})
    result = sandbox.run("plan")
    assert "workload/shop/slow" in result.out
    assert "latency" in result.out
    sandbox.commit({"shop/slow.yaml": None})


@pytest.mark.parametrize(
    ("resource", "verdict", "message"),
    [
        ("pods/exec", "warning", "may not create/get of pods/exec"),
        ("deployments.apps", "problem", "of deployments.apps"),
    ],
)
def test_doctor_weighs_a_missing_right_by_what_needs_it(
    sandbox: CommandSandbox, server: FakeApiServer, resource: str, verdict: str, message: str
) -> None:
    server.authorizer.forbid(resource)
    checks = sandbox.run("doctor", "--format", "json").json["checks"]
    server.heal()
    [check] = [check for check in checks if check["about"] == "cluster of here"]
    assert check["verdict"] == verdict
    assert message in check["message"]
    assert "reconciler render --access" in check["advice"]


def test_doctor_names_an_expired_token_and_does_not_print_it(sandbox: CommandSandbox, server: FakeApiServer) -> None:
    token = server.token
    server.expire_token()
    result = sandbox.run("doctor")
    server.heal()
    assert result.code == 1
    [line] = [line for line in result.out.splitlines() if "cluster of here" in line]
    assert "Unauthorized" in line
    assert token not in result.out


def test_what_people_see(sandbox: CommandSandbox, tmp_path: Path) -> None:
    plain = CommandSandbox(tmp_path / "plain")
    plain.applied()
    transcript = ""
    for shop, words in (
        (plain, ["render", "workload/shop/api"]),
        (plain, ["eject", "out"]),
        (sandbox, ["render", "volumeset/shop/data"]),
        (sandbox, ["render", "--access"]),
        (sandbox, ["eject", "out"]),
    ):
        result = shop.run(*words)
        transcript += f"$ reconciler {' '.join(words)}\n{result.out}{result.err}"
    golden("render.txt", transcript)
