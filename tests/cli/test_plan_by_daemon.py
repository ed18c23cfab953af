"""A running daemon answers `reconciler plan`: the same plan as a process of its own would make, and sooner."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path

import pytest

from reconciler import __version__
from tests.cli.test_plan import CHANGED
from tests.kubernetes.api_server import fake_api_server
from tests.support import processes
from tests.support.command_sandbox import SHOP, workload
from tests.support.examples import thin_out
from tests.support.git import File
from tests.support.sandbox import DaemonSandbox, eventually

HEAVY = {"asyncio", "pygit2", "reconciler.pipeline", "reconciler.manifests.rules", "reconciler.planning"}
"""What a command does without if the daemon answers; it takes two thirds of a plan."""

WARNED = workload("web", "3") + "# reconciler: ignore no-such-rule\n"
COMMITS: dict[str, dict[str, File]] = {
    "nothing to do": {},
    "changes": CHANGED,
    "a warning": {"shop/web.yaml": WARNED},
    "an error": {"shop/web.yaml": "kind: workload\nname: web\nspec: {type: standart}\n"},
}


@pytest.fixture
def sandbox(tmp_path: Path) -> DaemonSandbox:
    sandbox = DaemonSandbox(tmp_path, SHOP)
    assert sandbox.run("apply").returncode == 0
    return sandbox


def loaded(sandbox: DaemonSandbox, *words: str) -> tuple[set[str], str]:
    """The modules of HEAVY that a command has imported at its end, and its output."""
    show = f"print('', 'loaded', *{HEAVY!r} & sys.modules.keys(), sep='|', file=sys.stderr)"
    run = f"import atexit, sys; atexit.register(lambda: {show}); sys.argv = ['reconciler', *{words!r}]"
    code = f"{run}; from reconciler.cli import main; main()"
    done = processes.run(["-c", code], environ=sandbox.environ, fresh=True)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("|loaded")]
    return set(line.split("|")[2:]), done.stdout


def answered(sandbox: DaemonSandbox, *words: str) -> bool:
    """Whether the daemon answers a plan with the options ``words``: then the command loads none of HEAVY."""
    return not loaded(sandbox, "plan", *words)[0]


@pytest.mark.parametrize("commit", thin_out(COMMITS))
def test_the_daemon_plans_what_a_command_alone_does(sandbox: DaemonSandbox, commit: str) -> None:
    assert sandbox.run("suspend", "main").returncode == 0
    if COMMITS[commit]:
        sandbox.repo.commit(COMMITS[commit])
    forms = ("text", "json", "markdown")

    def plans() -> list[tuple[int, str, str]]:
        by_daemon = [sandbox.run("plan", "--format", form, "--detailed-exitcode") for form in forms]
        return [(each.returncode, each.stdout, each.stderr) for each in by_daemon]

    with sandbox.daemon() as daemon:
        for form in forms:
            eventually(partial(answered, sandbox, "--format", form), f"the daemon answers as {form}")
        by_daemon = plans()
        with sandbox.records() as records:
            assert records.requests.open() == []
            assert not [each for each in range(1, 20) if records.requests.get(each)]
        assert daemon.stop() == 0
        assert daemon.logged("bug") == []
    assert by_daemon == plans()


def test_the_daemon_asks_clusters_about_a_plan(tmp_path: Path) -> None:
    with fake_api_server(tmp_path / "cluster") as server:
        server.run_controllers()
        here = {"engine": "kubernetes", "cluster": {"kubeconfig": str(server.kubeconfig)}}
        locations = {"here": here, "there": {"engine": "recorded"}}
        sandbox = DaemonSandbox(
            tmp_path / "shop", SHOP, locations=locations, images={"registry": "registry.example.com"}
        )
        with sandbox.daemon() as daemon:
            eventually(lambda: server.objects("Deployment", "shop"), "it is applied")
            assert sandbox.run("suspend", "main").returncode == 0
            sandbox.repo.commit({"shop/web.yaml": workload("web", "3")})
            eventually(partial(answered, sandbox), "the daemon answers")
            server.admission.deny("Deployment", "images need a digest")
            done = sandbox.run("plan")
            assert done.returncode == 1
            assert "Refused at here: workload/shop/web: " in done.stdout
            assert "images need a digest" in done.stdout
            assert daemon.logged("bug") == []


def test_the_daemon_does_not_answer_for_other_settings(sandbox: DaemonSandbox) -> None:
    other = sandbox.path / "other.yaml"
    other.write_text(json.dumps(sandbox.settings | {"locations": {"here": {"engine": "recorded"}}}))
    with sandbox.daemon():
        eventually(lambda: answered(sandbox), "the daemon answers")
        assert not answered(sandbox, "--settings", str(other))


def test_a_daemon_that_hangs_delays_a_plan_only_a_little(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        eventually(lambda: answered(sandbox), "the daemon answers")
        daemon.signal(signal.SIGSTOP)
        try:
            heavy, shown = loaded(sandbox, "plan")
        finally:
            daemon.signal(signal.SIGCONT)
        assert "pygit2" in heavy
        assert "nothing to do" in shown
        with sandbox.records() as records:
            assert records.requests.open() == []


def test_a_plan_of_a_revision_or_into_a_file_is_made_by_the_command(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon():
        eventually(lambda: answered(sandbox), "the daemon answers")
        assert not answered(sandbox, "--revision", "HEAD")
        assert not answered(sandbox, "--out", str(sandbox.path / "plan.json"))
    assert json.loads((sandbox.path / "plan.json").read_text())["steps"] == []


def test_a_daemon_of_another_version_is_not_asked(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon():
        eventually(lambda: answered(sandbox), "the daemon answers")
        lock = sandbox.state / "lock"
        lock.write_bytes(lock.read_bytes().replace(__version__.encode(), b"9"))
        assert not answered(sandbox)
