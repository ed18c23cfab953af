"""The service under a real systemd: start, reload, watchdog, restart, stop, journal; workloads go on through it all."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.host_sandbox import GVC, served
from tests.support.sandbox import eventually
from tests.systemd.machine import NEEDS_MACHINE, Machine, machine

pytestmark = [pytest.mark.slow, NEEDS_MACHINE]

SETTINGS = """\
org: acme
sources:
  - {name: main, url: /srv/git/manifests, branch: main, interval: 1s, status: {interval: 1s}}
locations:
  here: {engine: host, runtime: process, dataplane: builtin}
host: {terminationScale: 0.02}
"""
DAEMON, REPLICAS = "reconciler.service", "reconciler-replicas.service"
LONG = 60.0
TITLE = re.compile(r"reconciler: shop/web/web-\w{5}/main")


@pytest.fixture(scope="module")
def host() -> Iterator[Machine]:
    """A machine whose daemon runs two replicas."""
    with TemporaryDirectory(prefix="reconciler-systemd-") as path, machine(Path(path)) as virtual:
        manifests = virtual.root / "srv/git/manifests"
        (manifests / "shop").mkdir(parents=True)
        (manifests / "shop/gvc.yaml").write_text(GVC)
        web = served(command="sh", args=["-c", "exec sleep 100000"], ports=None, readinessProbe=None)
        (manifests / "shop/web.yaml").write_text(web)
        for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Two of them")):
            known = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
            subprocess.run(["git", "-C", manifests, *known, *command], check=True)
        (virtual.root / "etc/reconciler/settings.yaml").write_text(SETTINGS)
        virtual.run("chown", "-R", "reconciler:", "/srv/git")
        virtual.run("systemctl", "enable", "--now", DAEMON)
        eventually(lambda: len(programs(virtual)) == 2, "two replicas run", LONG)
        yield virtual


def programs(host: Machine) -> set[str]:
    """The numbers of what replicas run."""
    return {line.split()[0] for line in tree(host, REPLICAS).splitlines() if line.endswith("sleep 100000")}


def tree(host: Machine, unit: str) -> str:
    """The processes of a unit, a line each with number and command."""
    shown = host.attempt("systemctl", "status", unit, "--no-pager", "--full", "--lines", "0")
    assert "Loaded:" in shown.stdout, shown.stderr
    return "\n".join(re.findall(r"[├└]─\s*(\d+ .*)$", shown.stdout, re.M))


def active(host: Machine) -> bool:
    """Whether the daemon reports that it is ready."""
    return host.show(DAEMON, "ActiveState") == "active"


def test_the_service_starts_and_shows_the_daemon_alone(host: Machine) -> None:
    assert active(host)
    assert int(host.show(DAEMON, "WatchdogUSec").removesuffix("min")) == 1
    assert [line.partition(" ")[2] for line in tree(host, DAEMON).splitlines()] == [
        "/usr/bin/python3 /usr/bin/reconciler run --settings /etc/reconciler/settings.yaml"
    ]
    assert len(TITLE.findall(tree(host, REPLICAS))) == 2
    assert "containers stay in the daemon's own service" not in host.journal(DAEMON)


def test_a_reload_takes_changed_settings_over(host: Machine) -> None:
    since, pid = host.cursor(), host.show(DAEMON, "MainPID")
    settings = host.root / "etc/reconciler/settings.yaml"
    settings.write_text(SETTINGS.replace("0.02", "0.03"))
    host.run("systemctl", "reload", DAEMON)
    eventually(lambda: '"event": "settings"' in host.journal(DAEMON, since), "they are taken over", LONG)
    assert host.show(DAEMON, "MainPID") == pid


def test_a_restart_leaves_workloads_alone_and_logs_nothing_of_them(host: Machine) -> None:
    since, before = host.cursor(), programs(host)
    host.run("systemctl", "restart", DAEMON)
    eventually(lambda: active(host) and '"event": "started"' in host.journal(DAEMON, since), "another daemon", LONG)
    assert programs(host) == before
    journal = host.journal(DAEMON, since)
    assert '"event": "stopped"' in journal
    assert "left-over process" not in journal
    assert "remains running" not in journal


def test_a_killed_daemon_comes_back_and_finds_its_workloads(host: Machine) -> None:
    before, pid = programs(host), host.show(DAEMON, "MainPID")
    host.run("systemctl", "kill", "--kill-whom=main", "--signal", "KILL", DAEMON)
    eventually(lambda: active(host) and host.show(DAEMON, "MainPID") not in ("0", pid), "another daemon", LONG)
    eventually(lambda: "Ready" in host.run("reconciler", "top", "--once"), "it knows them", LONG)
    assert programs(host) == before


def test_a_daemon_that_hangs_is_ended_by_the_watchdog(host: Machine) -> None:
    since, before, pid = host.cursor(), programs(host), host.show(DAEMON, "MainPID")
    host.run("systemctl", "kill", "--kill-whom=main", "--signal", str(int(signal.SIGSTOP)), DAEMON)
    eventually(lambda: "Watchdog timeout" in host.journal(DAEMON, since), "the watchdog", 120.0)
    eventually(lambda: active(host) and host.show(DAEMON, "MainPID") not in ("0", pid), "another daemon", 180.0)
    assert programs(host) == before


def test_commands_see_what_runs(host: Machine) -> None:
    shown = host.run("reconciler", "top", "--once")
    assert shown.count("Ready") == 2
    assert "workload/shop/web  Healthy" in host.run("reconciler", "get")


def test_a_stop_of_both_services_ends_everything(host: Machine) -> None:
    before = programs(host)
    host.run("systemctl", "stop", DAEMON)
    assert programs(host) == before
    host.run("systemctl", "stop", REPLICAS)
    assert programs(host) == set()
    host.run("systemctl", "start", DAEMON)
    eventually(lambda: len(programs(host)) == 2, "two replicas run again", LONG)
    assert host.show(REPLICAS, "ActiveState") == "active"
