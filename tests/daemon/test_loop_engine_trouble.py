"""An engine that fails or hangs: what the daemon does meanwhile, and what it reports."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from reconciler.daemon.loop import Daemon
from reconciler.daemon.systemd import SystemdNotifier
from reconciler.pipeline.runner import Runner
from reconciler.records.store import Records
from reconciler.settings import load_settings
from tests.support.clock import FakeClock
from tests.support.sandbox import SHOP, DaemonProcess, DaemonSandbox, ServiceManager, eventually, workload

RETRY = {"base": "100ms", "cap": "200ms", "attempts": 1}


@pytest.fixture
def sandbox(tmp_path: Path) -> DaemonSandbox:
    """A shop with two workloads, where failed steps are tried again soon."""
    return DaemonSandbox(tmp_path, SHOP | {"shop/web.yaml": workload("web")}, retry=RETRY)


def daemon(sandbox: DaemonSandbox, **environ: str) -> AbstractContextManager[DaemonProcess]:
    """A daemon with a troubled engine."""
    return sandbox.daemon("-m", "tests.daemon.daemon_with_failures", str(sandbox.path), **environ)


def test_steps_that_fail_are_tried_again_until_they_work(sandbox: DaemonSandbox) -> None:
    (sandbox.path / "fail").touch()
    with daemon(sandbox) as running:
        eventually(lambda: "NoFreePort" in sandbox.status("shop/workload/api.yaml"), "the branch names what fails")
        assert sandbox.condition("Ready") == "false StepsFailed"
        assert sorted(sandbox.recorded()) == ["gvc/shop", "workload/shop/api@here", "workload/shop/web@here"]
        eventually(lambda: len(running.logged("reconciled", reason="retry")) >= 2, "it tries again")
        (sandbox.path / "fail").unlink()
        eventually(lambda: "workload/shop/web@there" in sandbox.recorded(), "it works")
        eventually(lambda: sandbox.condition("Ready") == "true Applied", "the condition reports it")
        eventually(lambda: "NoFreePort" not in sandbox.status("shop/workload/api.yaml"), "the branch reports it")
        with sandbox.records() as records:
            assert records.failures.count() == 0


def test_a_retry_that_cannot_be_made_does_not_occupy_the_daemon(sandbox: DaemonSandbox) -> None:
    (sandbox.path / "fail").touch()
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    with ServiceManager(sandbox.path) as systemd, daemon(sandbox, **systemd.environ) as running:
        eventually(lambda: running.logged("reconciled", reason="retry"), "it tries again")
        sandbox.repo.commit({"shop/bad.yaml": "kind: gvc\nname: [\n"})
        eventually(lambda: running.logged("reconciled", outcome="refused"), "the next revision is refused")
        rounds = len(systemd.notifications())
        time.sleep(1.0)
        assert len(systemd.notifications()) - rounds <= 4


def test_a_waiting_apply_gets_the_outcome_of_the_run(sandbox: DaemonSandbox) -> None:
    (sandbox.path / "fail").touch()
    with daemon(sandbox) as running:
        eventually(lambda: running.logged("reconciled", outcome="failed"), "a step fails")
        assert sandbox.run("apply").returncode == 1, "one run is all it waits for"
        command = [*sandbox.command, "apply", "--wait"]
        waiting = subprocess.Popen(command, env=sandbox.environ, stdout=subprocess.PIPE, text=True)
        eventually(lambda: len(running.logged("reconciled", reason="apply")) >= 2, "it asks again")
        assert waiting.poll() is None
        (sandbox.path / "fail").unlink()
        output, _ = waiting.communicate(timeout=60)
        assert (waiting.returncode, "workload/shop/web@there" in sandbox.recorded()) == (0, True), output


def test_a_waiting_apply_sees_what_the_daemon_did_by_itself(sandbox: DaemonSandbox) -> None:
    (sandbox.path / "fail").touch()
    with daemon(sandbox) as running:
        eventually(lambda: running.logged("reconciled", outcome="failed"), "a step fails")
        command = [*sandbox.command, "apply", "--wait"]
        waiting = subprocess.Popen(command, env=sandbox.environ, stdout=subprocess.PIPE, text=True)
        eventually(lambda: running.logged("reconciled", reason="apply"), "it asks")
        waiting.send_signal(signal.SIGSTOP)
        (sandbox.path / "fail").unlink()
        eventually(lambda: running.logged("reconciled", outcome="applied"), "the daemon tries again by itself")
        waiting.send_signal(signal.SIGCONT)
        output, _ = waiting.communicate(timeout=60)
        assert (waiting.returncode, "workload/shop/web@there" in sandbox.recorded()) == (0, True), output


def test_a_newer_revision_pre_empts_what_has_not_begun(sandbox: DaemonSandbox) -> None:
    (sandbox.path / "hang").touch()
    with daemon(sandbox) as running:
        eventually(lambda: "workload/shop/web@here" in sandbox.recorded(), "one place is done")
        commit = sandbox.repo.commit({"shop/web.yaml": workload("web", 7001), "shop/cart.yaml": workload("cart")})
        time.sleep(0.3)
        (sandbox.path / "hang").unlink()
        eventually(lambda: commit in sandbox.status("shop/workload/cart.yaml"), "the newest is applied")
        first = running.logged("reconciled")[0]
        assert (first["outcome"], first["waiting"]) == ("waiting", 1)
        versions = {key: record.version for key, record in sandbox.recorded().items()}
        assert (versions["workload/shop/web@here"], versions["workload/shop/web@there"]) == (2, 2)


def test_a_loop_that_hangs_is_no_longer_called_alive(sandbox: DaemonSandbox) -> None:
    (sandbox.path / "hang").touch()
    with ServiceManager(sandbox.path) as systemd, daemon(sandbox, WATCHDOG_USEC="600000", **systemd.environ):
        eventually(lambda: "workload/shop/web@here" in sandbox.recorded(), "one place is done, the other hangs")
        eventually(lambda: _is_silent(systemd), "it is not called alive")
        before = systemd.notifications().count("WATCHDOG=1")
        (sandbox.path / "hang").unlink()
        eventually(lambda: systemd.notifications().count("WATCHDOG=1") > before, "it lives again")


def _is_silent(systemd: ServiceManager) -> bool:
    """Whether no sign of life comes for longer than the service manager waits for one."""
    before = systemd.notifications().count("WATCHDOG=1")
    time.sleep(0.7)
    return systemd.notifications().count("WATCHDOG=1") == before


def test_a_step_in_flight_ends_before_the_daemon_does(sandbox: DaemonSandbox) -> None:
    (sandbox.path / "hang").touch()
    with daemon(sandbox) as running:
        eventually(lambda: "workload/shop/web@here" in sandbox.recorded(), "one place is done")
        running.process.terminate()
        time.sleep(0.2)
        assert running.process.poll() is None
        (sandbox.path / "hang").unlink()
        assert running.process.wait(60) == 0
    assert sorted(key for key in sandbox.recorded() if key.endswith("@there")) == ["workload/shop/api@there"]
    with sandbox.records() as records:
        assert records.journal.open() == []
    with daemon(sandbox):
        eventually(lambda: "workload/shop/web@there" in sandbox.recorded(), "the rest follows")


def test_a_fetch_may_take_as_long_as_its_settings_allow(tmp_path: Path) -> None:
    remote = {"name": "far", "url": "https://git.example/far.git", "timeout": "5m"}
    sandbox = DaemonSandbox(tmp_path, sources=[remote])
    settings = load_settings(sandbox.settings_file)
    with contextlib.closing(Records.open(None)) as records:
        runner = Runner(settings, records, FakeClock())
        clock, notifier = FakeClock(auto=True), SystemdNotifier({"WATCHDOG_USEC": "60000000"})
        watchdog = Daemon(runner, clock, clock, notifier).watchdog
    watchdog.progress()
    for seconds, fresh in ((301.0, True), (60.0, False)):
        asyncio.run(clock.sleep(seconds))
        assert watchdog.is_alive() is fresh
