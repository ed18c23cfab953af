"""HAProxy in its own unit under a real systemd: it alone may take low ports, and the daemon starts no second one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reconciler.engines.host.dataplane.haproxy.discovery import ProxyUnit
from tests.support.host_sandbox import GVC, served
from tests.support.sandbox import eventually
from tests.systemd.machine import NEEDS_MACHINE, Machine, machine

pytestmark = [pytest.mark.slow, NEEDS_MACHINE]

SETTINGS = """\
org: acme
sources:
  - {name: main, url: /srv/git/manifests, branch: main, interval: 1s, status: {interval: 1s}}
locations:
  here: {engine: host, runtime: process, dataplane: haproxy}
host: {terminationScale: 0.02}
"""
DAEMON = "reconciler.service"
UNIT = ProxyUnit("here")
LONG = 60.0
LOW_PORTS = 1 << 10
"""The capability CAP_NET_BIND_SERVICE."""
ASK = "import sys, urllib.request; print(urllib.request.urlopen('http://' + sys.argv[1], timeout=5).status)"


@pytest.fixture(scope="module")
def host() -> Iterator[Machine]:
    """A machine whose daemon serves a workload by the HAProxy of the unit."""
    with TemporaryDirectory(prefix="reconciler-systemd-") as path, machine(Path(path)) as virtual:
        (virtual.root / "srv/git/manifests/shop").mkdir(parents=True)
        (virtual.root / "srv/git/manifests/shop/gvc.yaml").write_text(GVC)
        git(virtual, "init", "-q", "-b", "main")
        declare(virtual, served(replicas=1))
        (virtual.root / "etc/reconciler/settings.yaml").write_text(SETTINGS)
        virtual.run("systemctl", "enable", "--now", UNIT.trigger)
        virtual.run("systemctl", "enable", "--now", DAEMON)
        eventually(lambda: answers(virtual), "the workload is served", LONG)
        yield virtual


def git(host: Machine, *command: str) -> None:
    """Run Git in the repository of the machine."""
    known = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com", "-c", "safe.directory=*"]
    subprocess.run(["git", "-C", host.root / "srv/git/manifests", *known, *command], check=True)


def declare(host: Machine, web: str) -> None:
    """Commit the manifest of the workload."""
    (host.root / "srv/git/manifests/shop/web.yaml").write_text(web)
    git(host, "add", "-A")
    git(host, "commit", "-q", "-m", "Change the workload")
    # The daemon writes into the same repository: a file of its own may be gone before it is reached.
    own = "chown -R reconciler: /srv/git && echo owned"
    eventually(lambda: host.run("sh", "-c", own, check=False), "the daemon owns the repository")


def address(host: Machine) -> str:
    """The address of the workload; "" if it has none."""
    shown = host.run("reconciler", "get", "workload", "web", "--gvc", "shop", "-o", "yaml", check=False)
    return next(iter(re.findall(r'^ +address: "(127\.0\.0\.1:\d+)"$', shown, re.M)), "")


def answers(host: Machine) -> bool:
    """Whether the workload answers at its address."""
    found = address(host)
    return bool(found) and host.run("python3", "-c", ASK, found, check=False).strip() == "200"


def masters(host: Machine) -> list[str]:
    """The numbers of all HAProxy that are no workers."""
    shown = host.run("ps", "-C", "haproxy", "-o", "pid=,ppid=", check=False).split()
    pairs = list(zip(shown[::2], shown[1::2], strict=True))
    return [pid for pid, parent in pairs if parent not in shown[::2]]


def test_the_unit_runs_haproxy_with_one_capability_and_the_daemon_has_none(host: Machine) -> None:
    main = host.show(UNIT.service, "MainPID")
    assert masters(host) == [main]
    for unit, expected in ((UNIT.service, LOW_PORTS), (DAEMON, 0)):
        status = host.run("cat", f"/proc/{host.show(unit, 'MainPID')}/status")
        found = re.findall(r"^Cap(?:Eff|Prm|Bnd|Amb):\s*(\w+)$", status, re.M)
        assert [int(each, 16) for each in found] == [expected] * 4
    assert host.run("ps", "-o", "user=", "-p", main).strip().startswith("reconci")


def test_a_killed_haproxy_is_back_by_its_unit(host: Machine) -> None:
    before = host.show(UNIT.service, "MainPID")
    host.run("systemctl", "kill", "--kill-whom=main", "--signal", "KILL", UNIT.service)
    eventually(lambda: host.show(UNIT.service, "MainPID") not in ("0", before) and answers(host), "another one", LONG)
    assert masters(host) == [host.show(UNIT.service, "MainPID")]


def test_haproxy_goes_on_without_the_daemon_and_is_found_again(host: Machine) -> None:
    before, where = host.show(UNIT.service, "MainPID"), address(host)
    host.run("systemctl", "kill", "--kill-whom=main", "--signal", "KILL", DAEMON)
    assert host.run("python3", "-c", ASK, where).strip() == "200"
    eventually(lambda: host.show(DAEMON, "ActiveState") == "active", "another daemon", LONG)
    declare(
        host, served(replicas=1, defaultOptions={"timeoutSeconds": 7, "autoscaling": {"minScale": 1, "maxScale": 1}})
    )
    config = host.root / "var/lib/reconciler/host/here/dataplane/haproxy/haproxy.cfg"
    eventually(lambda: "timeout server 7s" in config.read_text(), "the daemon changes its configuration", LONG)
    eventually(lambda: answers(host), "it serves", LONG)
    assert host.show(UNIT.service, "MainPID") == before
    assert masters(host) == [before]


def test_a_reload_by_systemd_loses_nothing(host: Machine) -> None:
    before = host.show(UNIT.service, "MainPID")
    host.run("systemctl", "reload", UNIT.service)
    assert answers(host)
    assert host.show(UNIT.service, "MainPID") == before


def test_it_ends_with_the_last_endpoint_and_comes_back_with_the_next(host: Machine) -> None:
    declare(host, served(replicas=1, ports=None, readinessProbe=None))
    eventually(lambda: host.show(UNIT.service, "ActiveState") == "inactive", "it has ended", LONG)
    declare(host, served(replicas=1))
    eventually(lambda: answers(host), "it serves again", LONG)
    assert masters(host) == [host.show(UNIT.service, "MainPID")]


def test_the_daemon_starts_its_own_once_the_unit_is_disabled(host: Machine) -> None:
    host.run("systemctl", "disable", "--now", UNIT.trigger)
    host.run("systemctl", "stop", UNIT.service)
    eventually(lambda: answers(host), "the daemon has started it", LONG)
    [other] = masters(host)
    assert host.show(UNIT.service, "ActiveState") == "inactive"
    # The unit takes over from it.
    host.run("systemctl", "enable", "--now", UNIT.trigger)
    eventually(lambda: masters(host) == [host.show(UNIT.service, "MainPID")], "the unit has relieved it", LONG)
    eventually(lambda: answers(host), "it serves", LONG)
    assert masters(host) != [other]
