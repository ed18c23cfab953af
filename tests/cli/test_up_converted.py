"""`reconciler up -f` and `--k8s` run files of other tools: converted, in a repository of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cli.local.converted_source import follow_converted
from reconciler.errors import RefusedError
from tests.support.command_sandbox import here
from tests.support.git import GitRepo
from tests.support.up_sandbox import UpSandbox, open_sandbox, page

COMPOSE = """services:
  web:
    image: python:3
    entrypoint: [sh, -c, "echo one > index.html; exec python3 -m http.server $$PORT"]
    ports: ["8080"]
"""
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec:
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {containers: [{name: api, image: "api:1"}]}
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[UpSandbox]:
    """An empty directory; what runs for it ends with the test."""
    with open_sandbox(tmp_path) as sandbox:
        yield sandbox


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a state home beside it."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def committed(url: str) -> dict[str, str]:
    """Path → text of the newest commit."""
    repo = GitRepo(Path(url))
    return {path: repo.git("show", f"main:{path}") for path in repo.git("ls-tree", "-r", "--name-only", "main").split()}


def test_a_compose_file_runs_and_an_edit_of_it_is_applied(sandbox: UpSandbox) -> None:
    file = sandbox.folder / "compose.yaml"
    file.write_text(COMPOSE)
    begun = sandbox.run("up", "-f", "compose.yaml", "--detach")
    assert begun.returncode == 0, begun
    assert "port 8080 is reached by the endpoint of the workload [compose-published]" in begun.stderr
    assert page(begun.stdout) == "one\n"
    file.write_text(COMPOSE.replace("one", "two"))
    again = sandbox.run("up", "-f", "compose.yaml")
    assert (again.returncode, page(again.stdout)) == (0, "two\n"), again
    assert "workload/project/web" in sandbox.run("get", "wl").stdout, "found from the directory of the file"
    file.write_text(COMPOSE + "  two: {imagee: x}\n")
    refused = sandbox.run("up", "-f", "compose.yaml")
    assert refused.returncode == 1
    assert "nothing is converted; what runs stays as it is" in refused.stderr
    assert page(again.stdout) == "two\n"
    ended = sandbox.run("down", "--volumes")
    assert ended.returncode == 0, ended
    assert f"replicas of {sandbox.folder} have ended" in ended.stdout, "what people know, not where it is converted to"
    assert list((sandbox.state / "reconciler").iterdir()) == []


def test_each_change_is_one_commit_and_none_is_none(folder: Path) -> None:
    (folder / "compose.yaml").write_text(COMPOSE)
    (folder / "compose.prod.yaml").write_text("services: {web: {image: 'python:4'}}\n")
    first = follow_converted(["compose.yaml"])
    assert {*committed(first.followed.url)} == {"shop/gvc.yaml", "shop/workload/web.yaml"}
    assert follow_converted(["compose.yaml"]) == (first.followed, "")
    (folder / "compose.yaml").write_text("services: {other: {image: 'python:3'}}\n")
    second = follow_converted(["compose.yaml"])
    assert second.followed == first.followed
    assert {*committed(second.followed.url)} == {"shop/gvc.yaml", "shop/workload/other.yaml"}
    subjects = GitRepo(Path(first.followed.url)).git("log", "--format=%H %s", "main").splitlines()
    assert subjects == [f"{each.commit} Convert compose.yaml to manifests" for each in (second, first)]


def test_a_directory_of_kubernetes_gets_a_gvc_for_each_namespace(folder: Path) -> None:
    (folder / "k8s").mkdir()
    (folder / "k8s/api.yaml").write_text(f"{DEPLOYMENT}---\n{DEPLOYMENT.replace('namespace: shop', 'namespace: ops')}")
    files = committed(follow_converted(["k8s"]).followed.url)
    assert {*files} == {f"{gvc}/{name}" for gvc in ("shop", "ops") for name in ("gvc.yaml", "workload/api.yaml")}
    assert "//location/local" in files["ops/gvc.yaml"]


def test_an_error_in_the_files_commits_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "compose.yaml").write_text("services: {web: {image: [1]}}\n")
    with pytest.raises(RefusedError, match="nothing is converted"):
        follow_converted(["compose.yaml"])
    assert "compose.yaml:1:25: error: " in capfd.readouterr().err
    assert list((folder.parent / "state").glob("reconciler/*/manifests.git")) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-f", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["-f", "a.yaml", "."], "name one of them"),
        (["a.yaml"], "a.yaml is a file; name the directory of a repository, or a compose file: up -f a.yaml"),
    ],
)
def test_a_file_that_cannot_run_is_named(folder: Path, words: list[str], message: str) -> None:
    (folder / "a.yaml").write_text(COMPOSE)
    refused = here("up", *words, cwd=folder)
    assert (refused.code, message in refused.err) == (2, True), refused


def test_the_settings_are_found_from_the_repository_around_the_files(folder: Path, tmp_path: Path) -> None:
    from reconciler.cli.local_settings import write_settings
    from reconciler.local_state import find_settings_of

    (folder / "k8s").mkdir()
    (folder / "k8s/api.yaml").write_text(DEPLOYMENT)
    file = write_settings(follow_converted(["k8s"]).followed, ["local"], "org")
    assert find_settings_of(folder / "k8s") == file
    assert find_settings_of(folder) is None, "only a repository holds it together"
    (folder / ".git").mkdir()
    assert find_settings_of(folder) == file
    assert find_settings_of(tmp_path) is None


COMMITTED = re.compile(r"2 manifests below deploy are committed as [0-9a-f]{12}: Convert compose.yaml to manifests\n")


def convert(folder: Path, *words: str) -> tuple[int, str, str]:
    result = here("convert", "--commit", "--location", "local", "--out", "deploy", *words, cwd=folder)
    return result.code, result.out, result.err


def test_manifests_are_committed_and_the_compose_file_is_no_manifest(folder: Path) -> None:
    repo = GitRepo.create(folder, {"notes.txt": "mine\n"}, bare=False)
    repo.git("checkout", "--quiet", "--force", "main")
    (folder / "compose.yaml").write_text(COMPOSE)
    (folder / "notes.txt").write_text("changed\n")
    code, out, _ = convert(folder, "compose.yaml")
    assert (code, COMMITTED.fullmatch(out) is not None) == (0, True), out
    changed = repo.git("show", "--name-only", "--format=%s", "main").split("\n")
    names = [".reconcilerignore", "deploy/shop/gvc.yaml", "deploy/shop/workload/web.yaml"]
    assert changed == ["Convert compose.yaml to manifests", "", *names]
    assert (folder / ".reconcilerignore").read_text() == "/compose.yaml\n"
    assert "2 documents, 2 resources\n" in here("validate", ".", cwd=folder).out, "the compose file is none"
    assert repo.git("status", "--porcelain").split() == ["M", "notes.txt", "??", "compose.yaml"]
    again = convert(folder, "--force", "compose.yaml")
    assert again[:2] == (0, f"nothing differs from what is committed in {folder}\n")


def test_a_dirty_index_and_plain_secrets_are_refused_before_anything_is_written(folder: Path) -> None:
    repo = GitRepo.create(folder, {"notes.txt": "mine\n"}, bare=False)
    repo.git("checkout", "--quiet", "--force", "main")
    (folder / "secret.yaml").write_text(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: db, namespace: shop}\nstringData: {password: kanarienvogel}\n"
    )
    code, _, err = convert(folder, "secret.yaml")
    assert (code, "secrets in plain text: db; " in err) == (1, True), err
    (folder / "notes.txt").write_text("changed\n")
    repo.git("add", "notes.txt")
    code, _, err = convert(folder, "--plain-secrets", "secret.yaml")
    assert code == 1
    assert err == (
        f"error: notes.txt is staged in {folder}, and a commit would take it along: commit it first, or "
        "`git restore --staged .`\n"
    )
    assert not (folder / "deploy").exists()
    repo.git("restore", "--staged", ".")
    assert convert(folder, "--plain-secrets", "secret.yaml")[0] == 0


def test_outside_of_a_repository_nothing_is_committed(folder: Path) -> None:
    (folder / "compose.yaml").write_text(COMPOSE)
    code, _, err = convert(folder, "compose.yaml")
    assert (code, "is in no work tree of Git: git init" in err) == (2, True)
    assert not (folder / "deploy").exists()
