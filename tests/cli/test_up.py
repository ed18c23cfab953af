"""`reconciler up` runs a directory on this machine without settings, and `reconciler down` ends all of it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import chdir, closing, suppress
from pathlib import Path

import pytest

from reconciler.cli.local_settings import Followed, build_settings
from tests.project.tree import ROOT
from tests.support.git import GitRepo
from tests.support.host_sandbox import open_place
from tests.support.programs import OWNER, find_common_python, give_away, only_root, tool
from tests.support.sandbox import eventually
from tests.support.terminal import terminal
from tests.support.up_sandbox import UpSandbox, open_sandbox, page

GVC = "kind: gvc\nname: app\nspec: {staticPlacement: {locationLinks: [//location/local]}}\n"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[UpSandbox]:
    """An empty directory; what runs for it ends with the test."""
    with open_sandbox(tmp_path) as sandbox:
        yield sandbox


def test_an_empty_directory_runs_in_one_command_and_ends_in_one(sandbox: UpSandbox) -> None:
    begun = sandbox.run("up", "--yes", "--detach")
    assert begun.returncode == 0, begun
    # On a busy machine it says after ten seconds what it waits for.
    assert [line for line in begun.stderr.splitlines() if not line.startswith("waiting: ")] == []
    assert page(begun.stdout) == "<h1>It runs from Git</h1>"

    again = sandbox.run("up", "--detach")
    assert again.returncode == 1
    assert "runs already" in again.stderr

    manifest = sandbox.folder / "app" / "web.yaml"
    manifest.write_text(manifest.read_text().replace("It runs from Git", "Changed"))
    assert "workload/app/web" in sandbox.run("get", "wl", cwd=sandbox.folder / "app").stdout, "also from below"
    git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@localhost"]
    subprocess.run([*git, "commit", "--quiet", "--all", "--message=Change it"], cwd=sandbox.folder, check=True)
    waited = sandbox.run("status", "HEAD", "--wait")
    assert (waited.returncode, "is applied" in waited.stdout) == (0, True), waited

    scaled = sandbox.run_platform("workload", "scale", "web", "2", "--gvc", "app")
    assert scaled.returncode == 0, scaled
    merge = re.search(r"git (merge) (reconciler/change-\S+)", scaled.stderr)
    assert merge, "the files that are checked out do not change under the hands of their owner"
    subprocess.run([*git, *merge.groups()], cwd=sandbox.folder, check=True, capture_output=True)
    assert "maxScale: 2" in manifest.read_text()
    assert sandbox.run("status", "HEAD", "--wait").returncode == 0

    ended = sandbox.run("down")
    assert ended.returncode == 0
    assert "stay in" in ended.stdout
    with pytest.raises(OSError, match="refused"):
        page(begun.stdout)
    both = [sandbox.start("up", "--detach") for _ in range(2)]
    answers = sorted((each.communicate() for each in both), key=lambda answer: "runs already" in answer[1])
    assert sorted(each.returncode for each in both) == [0, 1], answers
    assert page(answers[0][0]) == "<h1>Changed</h1>"
    assert "`reconciler status` shows it, `reconciler down` ends it" in answers[1][1]
    ended = sandbox.run("down", "--volumes")
    assert ended.returncode == 0
    assert list((sandbox.state / "reconciler").iterdir()) == []
    missing = sandbox.run("down")
    assert (missing.returncode, "nothing runs" in missing.stderr) == (1, True)


PAGES = {"compose": "<h1>It runs from compose.yaml</h1>", "kubernetes": "<h1>It runs from Kubernetes YAML</h1>"}


@pytest.mark.slow
@pytest.mark.parametrize("template", PAGES)
def test_an_empty_directory_becomes_the_example_that_is_named(sandbox: UpSandbox, template: str) -> None:
    begun = sandbox.run("up", "--template", template, "--detach")
    assert (begun.returncode, page(begun.stdout)) == (0, PAGES[template]), begun
    assert sandbox.run("validate", ".").stdout.endswith("no findings in 2 documents, 2 resources\n")
    assert sandbox.run("plan").stdout.endswith("Plan: nothing to do.\n")


def test_a_person_on_a_terminal_is_asked_which_example(sandbox: UpSandbox) -> None:
    program = [sys.executable, "-m", "reconciler.cli", "up", "--detach", "--timeout", "0.1s"]
    with chdir(sandbox.folder), terminal(program, sandbox.environ, controlling=True) as asked:
        asked.until(lambda screen: "as a repository? [Y/n]" in screen, "the first question")
        asked.type(b"\r")
        asked.until(lambda screen: "Which example (system, web, compose, kubernetes) [web]" in screen, "the second one")
        asked.type(b"compose\r")
        asked.ended()
    assert (sandbox.folder / "app" / "workload" / "web.yaml").exists()
    assert (sandbox.folder / "compose.yaml").exists()


def test_an_image_without_podman_names_the_package(sandbox: UpSandbox) -> None:
    (sandbox.folder / "gvc.yaml").write_text(GVC)
    (sandbox.folder / "web.yaml").write_text(
        "kind: workload\nname: web\ngvc: app\nspec: {type: standard, containers: [{name: main, image: nginx:1.27}]}\n"
    )
    begun = time.monotonic()
    refused = sandbox.run("up", "--yes", "--detach", "--timeout", "10m")
    assert (refused.returncode, time.monotonic() - begun < 60) == (1, True), "it does not wait for what cannot come"
    assert "at local images are not used" in refused.stdout + refused.stderr
    plan = sandbox.run("plan")
    assert (plan.returncode, "apt-get install podman netavark" in plan.stdout + plan.stderr) == (1, True)


def test_a_page_whose_port_another_program_took_gets_another(sandbox: UpSandbox) -> None:
    (sandbox.folder / "gvc.yaml").write_text(GVC)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        begun = sandbox.run("up", "--yes", "--detach", "--set", f"api.address={taken}")
        assert f"The page: none yet: the daemon cannot listen at {taken} (Address already in use)" in begun.stdout
        assert "runs already" in sandbox.run("up").stderr
        assert taken in sandbox.settings(), "it stays while the daemon runs"
        sandbox.run("down")
        begun = sandbox.run("up", "--detach")
        assert (begun.returncode, "The page: http://" in begun.stdout) == (0, True), begun
        assert taken not in begun.stdout + sandbox.settings()


def test_a_directory_that_is_no_repository_is_asked_about(sandbox: UpSandbox) -> None:
    refused = sandbox.run("up")
    assert refused.returncode == 1
    assert (
        "is in no Git repository; to write an example into it, as a repository, add --yes, or --template NAME"
        in refused.stderr
    )
    (sandbox.folder / "gvc.yaml").write_text(GVC)
    assert "to make it one, with a commit of all files, add --yes" in sandbox.run("up").stderr
    (sandbox.folder / "gvc.yaml").rename(sandbox.folder / "gvc.txt")
    (sandbox.folder / "compose.yaml").write_text("services:\n  web: {image: nginx}\n")
    assert "compose.yaml is a compose file: reconciler up -f compose.yaml runs it" in sandbox.run("up", "--yes").stderr
    assert not (sandbox.folder / ".git").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "has no commit yet: git add --all && git commit"),
        ({"readme.txt": "x"}, "has no manifests in its newest commit; `reconciler init DIR`"),
        (
            {"compose.yaml": "services:\n  web: {image: nginx}\n"},
            "compose.yaml is a compose file: reconciler up -f compose.yaml",
        ),
        ({"k8s/app.yaml": "apiVersion: v1\nkind: Pod\n"}, "k8s/app.yaml is of Kubernetes: reconciler up --k8s k8s"),
    ],
    ids=["no commit", "no manifest", "compose", "kubernetes"],
)
def test_what_cannot_run_names_the_way_out(sandbox: UpSandbox, files: dict[str, str] | None, message: str) -> None:
    if files is None:
        subprocess.run(["git", "init", "--quiet", str(sandbox.folder)], check=True)
    else:
        GitRepo.create(sandbox.folder, files, bare=False)
    refused = sandbox.run("up", "--detach")
    assert (refused.returncode, message in refused.stderr) == (1, True), refused.stderr


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("nowhere", 2, "nowhere does not exist"),
        ("file:///nowhere", 1, "file:///nowhere cannot be followed"),
        ("gvc.yaml", 2, "is a file"),
        (
            "https://ada:hidden-word@example.invalid/x.git",
            2,
            "the url of the source at example.invalid holds a password",
        ),
        ("ext::sh -c 'touch here'", 2, "names a program to run"),
    ],
)
def test_a_source_that_is_not_there_is_refused(sandbox: UpSandbox, source: str, code: int, message: str) -> None:
    (sandbox.folder / "gvc.yaml").write_text(GVC)
    refused = sandbox.run("up", source)
    assert (refused.returncode, message in refused.stderr) == (code, True), refused.stderr
    assert "hidden-word" not in refused.stderr


def test_the_settings_are_those_of_what_is_checked_out(sandbox: UpSandbox) -> None:
    repo = GitRepo.create(sandbox.folder, bare=False)
    files = {"deploy/gvc.yaml": GVC.replace("local", "aws-eu-1"), "deploy/.reconciler.yaml": "org: acme\n"}
    repo.commit(files | {"other.yaml": "x: 1\n"})
    repo.git("checkout", "--quiet", "--force", "-b", "side", "main")
    (sandbox.folder / "deploy" / "gvc.yaml").write_text(GVC)
    begun = sandbox.run("up", "deploy", "--detach")
    note = "source main: 1 file differs from the commit and does not count: deploy/gvc.yaml; commit what is to run, or "
    assert begun.stderr == f"{note}plan it: reconciler plan --working-tree\n"
    settings = sandbox.settings()
    for line in ("org: acme", "branch: side", "path: deploy", "aws-eu-1:"):
        assert line in settings
    assert "local:" not in settings

    repo.git("checkout", "--quiet", "--force", "side")
    repo.commit({"deploy/more.yaml": GVC.replace("name: app", "name: more").replace("local", "later")}, branch="side")
    eventually(lambda: "later:" in sandbox.settings(), "what a later commit names is bound, too")
    eventually(lambda: sandbox.run("get", "gvc", "more").returncode == 0)


def test_a_url_is_followed_at_its_default_branch(sandbox: UpSandbox, tmp_path: Path) -> None:
    declared = "org: nightly\ngvc: app\nexternal: [//secret/elsewhere]\n"
    identity = (
        "kind: identity\nname: api\n---\nkind: policy\nname: reads\ntargetKind: secret\n"
        "targetLinks: [//secret/elsewhere]\n"
        "bindings: [{permissions: [reveal], principalLinks: [//gvc/app/identity/api]}]\n"
    )
    files = {"gvc.yaml": GVC, "identity.yaml": identity, ".reconciler.yaml": declared}
    GitRepo.create(tmp_path / "remote", files)
    url = f"file://{tmp_path / 'remote'}"
    begun = sandbox.run("up", url, "--detach")
    assert begun.returncode == 0, begun
    assert f"url: {url}" in sandbox.settings()
    assert "org: nightly" in sandbox.settings()
    [settings_file] = sandbox.state.glob("reconciler/*/settings.yaml")
    listed = sandbox.run("get", "--settings", str(settings_file), "-o", "name").stdout
    assert "identity/app/api" in listed
    link = re.search(r"The page: (http://\S+)", begun.stdout)
    assert link is not None, begun
    with urllib.request.urlopen(link[1].replace("reconciler.localhost", "127.0.0.1"), timeout=60) as answer:
        assert answer.status == 200
    assert sandbox.run("down", url, "--volumes").returncode == 0


def test_the_status_of_a_remote_repository_stays_on_this_machine() -> None:
    for url, pushes in (("https://git.example.com/shop.git", False), ("git@git.example.com:shop.git", False)):
        [source] = build_settings(Followed(url, "main"), ["local"], "acme", 7400)["sources"]
        assert source["status"].get("push", True) is pushes
    [source] = build_settings(Followed("/srv/shop", "main"), ["local"], "acme", 7400)["sources"]
    assert "push" not in source["status"]


def test_in_the_foreground_the_address_is_announced_and_an_interrupt_ends_all(sandbox: UpSandbox) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "RECONCILER_SETTINGS"}
    words = [sys.executable, "-u", "-m", "reconciler.cli", "up", "--yes"]
    environ |= {"XDG_STATE_HOME": str(sandbox.state), "PATH": sandbox.path}
    shown = []
    with subprocess.Popen(words, cwd=sandbox.folder, env=environ, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            shown.append(line)
            if "http://127.0.0.1" in line:
                break
        address = shown[-1]
        assert page(address) == "<h1>It runs from Git</h1>"
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert running.returncode == 0, rest
    assert shown[0].startswith(f"Following {sandbox.folder} (branch main)")
    assert rest.endswith("to remove them: reconciler down --volumes\n")
    with pytest.raises(OSError, match="refused"):
        page(address)


@pytest.mark.slow
def test_an_interrupt_leaves_a_sentence_on_what_goes_on(sandbox: UpSandbox) -> None:
    program = [sys.executable, "-m", "reconciler.cli"]
    environ = {**sandbox.environ, "TERM": "xterm"}
    with chdir(sandbox.folder), terminal([*program, "up", "--yes", "--detach"], environ, controlling=True) as begun:
        begun.until(lambda screen: "waiting: " in screen, "what it waits for")
        begun.interrupt()
        assert "the daemon goes on as pid " in begun.ended()
        assert begun.process.returncode == 130
    assert sandbox.run("status", "--wait").returncode == 0
    manifest = sandbox.folder / "app" / "web.yaml"
    manifest.write_text(manifest.read_text().replace("import os", "import os, time; time.sleep(60)"))
    git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@localhost"]
    subprocess.run([*git, "commit", "--quiet", "--all", "--message=Slow it"], cwd=sandbox.folder, check=True)
    with chdir(sandbox.folder):
        for words, sentence in ((["apply", "--wait"], "the daemon goes on with it"), (["status", "--wait"], "")):
            with terminal([*program, *words], environ, controlling=True) as waiting:
                waiting.until(lambda screen: "0 available" in screen, "what it waits for")
                waiting.interrupt()
                shown = waiting.ended()
                assert (waiting.process.returncode, sentence in shown, "Traceback" in shown) == (130, True, False)


def test_podman_is_started_and_an_image_that_it_cannot_get_is_named() -> None:
    tool("podman", "podman")
    # The path of its socket has to be short.
    with open_place() as place, open_sandbox(place, "s", os.environ["PATH"]) as sandbox:
        (sandbox.folder / "gvc.yaml").write_text(GVC)
        (sandbox.folder / "web.yaml").write_text(
            "kind: workload\nname: web\ngvc: app\n"
            "spec: {type: standard, containers: [{name: main, image: 'registry.invalid/page:1'}]}\n"
        )
        begun = sandbox.run("up", "--yes", "--detach")
    assert begun.returncode == 1, begun
    assert "ImagePullFailed: the image registry.invalid/page:1: " in begun.stdout, begun.stdout


@only_root("only root can become another user, and take the ports of the web")
def test_a_user_runs_a_directory_without_rights_and_with_the_ports_of_the_web_taken(
    sandbox: UpSandbox, tmp_path: Path
) -> None:
    python, setpriv = find_common_python(), tool("setpriv", "util-linux")
    give_away(sandbox.folder)
    sandbox.state.mkdir()
    give_away(sandbox.state)
    words = [setpriv, f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups", python, "-m", "reconciler.cli"]
    environ = {**sandbox.environ, "HOME": str(sandbox.folder), "PYTHONPATH": ":".join([str(ROOT), *sys.path])}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *more], cwd=sandbox.folder, env=environ, capture_output=True, text=True, check=False
        )

    with closing(socket.socket()) as http, closing(socket.socket()) as https:
        for number, taken in ((80, http), (443, https)):
            with suppress(OSError):  # another program has it, which will do
                taken.bind(("0.0.0.0", number))
                taken.listen()
        begun = run("up", "--yes", "--detach")
        assert (begun.returncode, page(begun.stdout)) == (0, "<h1>It runs from Git</h1>"), begun
    assert {path.stat().st_uid for path in sandbox.state.glob("reconciler/*/*")} == {OWNER}
    assert run("down", "--volumes").returncode == 0
