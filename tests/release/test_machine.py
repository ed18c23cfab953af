"""The Debian package on a machine: installed, upgraded while replicas run, downgraded, removed and purged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reconciler.records.migrations import schema_versions
from tests.project.tree import ROOT
from tests.release.conftest import NEWER, Release
from tests.support.git import git
from tests.support.sandbox import eventually
from tests.systemd.machine import NEEDS_MACHINE, Machine, machine

pytestmark = [pytest.mark.packaging, NEEDS_MACHINE]

SETTINGS = """\
org: acme
sources:
  - {name: main, url: /srv/git/manifests, branch: main, interval: 1s, status: {interval: 1s}}
locations:
  aws-us-west-2: {engine: host, runtime: process, dataplane: builtin}
  gcp-us-east1: {engine: recorded}
host: {terminationScale: 0.02}
"""
DAEMON, REPLICAS = "reconciler.service", "reconciler-replicas.service"
STATE = "var/lib/reconciler"
LONG = 120.0
INSTALL = ("dpkg", "--install")
BROKEN = "/opt/broken.deb"
"""The later release, damaged in the middle."""


@pytest.fixture(scope="module")
def host(released: Release, newer: Release) -> Iterator[Machine]:
    """A machine with the files of both releases, and the example as a repository."""
    with TemporaryDirectory(prefix="reconciler-package-") as path:

        def copy_packages(root: Path) -> None:
            for each in (released, newer):
                shutil.copy(each.find("*.deb"), root / "opt")
            whole = newer.find("*.deb").read_bytes()
            middle = len(whole) // 2
            (root / BROKEN.removeprefix("/")).write_bytes(whole[:middle] + bytes(1000) + whole[middle + 1000 :])

        with machine(Path(path), copy_packages) as virtual:
            manifests = virtual.root / "srv/git/manifests"
            shutil.copytree(ROOT / "examples/repo", manifests)
            git(manifests, "init", "--quiet", "--initial-branch=main")
            git(manifests, "add", "--all")
            git(manifests, "commit", "--quiet", "--message", "The example")
            yield virtual


def find_package(host: Machine, version: str) -> str:
    """The path of a package in the machine."""
    (package,) = (host.root / "opt").glob(f"*_{version}_*.deb")
    return f"/opt/{package.name}"


def list_replicas(host: Machine) -> set[str]:
    """The numbers of the processes that the example runs."""
    group = host.show(REPLICAS, "ControlGroup")
    if not group:
        return set()
    listed = host.run("find", f"/sys/fs/cgroup{group}", f"/sys/fs/cgroup/systemd{group}", "-name", "cgroup.procs",
                      "-exec", "cat", "{}", "+", check=False)  # fmt: skip
    return set(listed.split())


def wait_until_well(host: Machine) -> None:
    """Wait until everything that the example declares is applied and healthy."""
    try:
        eventually(lambda: host.attempt("reconciler", "status").returncode == 0, patience=LONG)
    except AssertionError:
        shown = host.attempt("reconciler", "status")
        pytest.fail(shown.stdout + shown.stderr + host.journal(DAEMON))


def test_the_package_begins_without_settings_and_asks_for_them(host: Machine) -> None:
    printed = host.run(*INSTALL, find_package(host, "0.1.0"))
    assert "write /etc/reconciler/settings.yaml" in printed
    assert host.attempt("systemctl", "is-enabled", DAEMON).stdout == "disabled\n"
    assert host.run("stat", "-c", "%U %G %a", f"/{STATE}") == "reconciler reconciler 700\n"
    assert host.run("dpkg", "--verify", "gitops-reconciler") == ""


def test_a_state_directory_of_root_stays_one(host: Machine) -> None:
    host.run("chown", "root:", f"/{STATE}")
    host.run("systemd-tmpfiles", "--create", "reconciler.conf")
    assert host.run("stat", "-c", "%U", f"/{STATE}") == "root\n"
    host.run("chown", "reconciler:", f"/{STATE}")


def test_the_three_commands_answer(host: Machine) -> None:
    assert host.run("reconciler", "--version") == "reconciler, version 0.1.0\n"
    assert host.run("platform", "--version") == "0.1.0\n"
    assert host.run("docker-credential-platform", "version") == "docker-credential-platform 0.1.0\n"
    for name in ("reconciler", "platform"):
        script = f"source /usr/share/bash-completion/completions/{name} && complete -p {name}"
        assert "_completion" in host.run("bash", "-c", script)


def test_the_service_applies_a_repository(host: Machine) -> None:
    host.run("chown", "-R", "reconciler:", "/srv/git")
    (host.root / "etc/reconciler/settings.yaml").write_text(SETTINGS)
    host.run("systemctl", "enable", "--now", DAEMON)
    wait_until_well(host)
    assert list_replicas(host)


def test_an_upgrade_that_fails_leaves_the_former_version_at_work(host: Machine) -> None:
    daemon, before = host.show(DAEMON, "MainPID"), list_replicas(host)
    assert host.attempt(*INSTALL, BROKEN).returncode == 1
    assert host.run("dpkg", "--verify", "gitops-reconciler") == ""
    assert host.show(DAEMON, "MainPID") not in ("0", daemon)
    assert "daemon   0.1.0" in host.run("reconciler", "version")
    assert list_replicas(host) == before


def test_an_upgrade_restarts_the_daemon_and_leaves_its_replicas_alone(host: Machine) -> None:
    since, daemon, before = host.cursor(), host.show(DAEMON, "MainPID"), list_replicas(host)
    host.run(*INSTALL, find_package(host, NEWER))
    assert host.show(DAEMON, "MainPID") not in ("0", daemon)
    assert list_replicas(host) == before
    assert f"daemon   {NEWER}" in host.run("reconciler", "version")
    wait_until_well(host)
    assert list_replicas(host) == before
    assert "left-over process" not in host.journal(DAEMON, since)


def test_a_downgrade_below_the_schema_of_the_records_is_refused_and_changes_nothing(host: Machine) -> None:
    daemon, before = host.show(DAEMON, "MainPID"), list_replicas(host)
    refused = host.attempt(*INSTALL, find_package(host, "0.1.0"))
    assert refused.returncode == 1
    records = f"/{STATE}/records.sqlite"
    newest = len(schema_versions())
    versions = f"has schema version {newest + 1}, and this package (0.1.0) knows versions up to {newest}."
    assert f"{records} {versions}" in refused.stderr
    assert f"move {records}* to another\ndirectory" in refused.stderr
    assert (host.show(DAEMON, "MainPID"), list_replicas(host)) == (daemon, before)
    assert host.run("dpkg-query", "--show", "--showformat", "${Version} ${Status}", "gitops-reconciler") == (
        f"{NEWER} install ok installed"
    )
    assert host.run("reconciler", "--version") == f"reconciler, version {NEWER}\n"


def test_a_removal_ends_everything_and_leaves_the_data(host: Machine) -> None:
    (host.root / "opt/marker").write_text("of the administrator")
    printed = host.run("dpkg", "--remove", "gitops-reconciler")
    assert "the daemon and all workloads on this host end; their data in /var/lib/reconciler stays" in printed
    assert list_replicas(host) == set()
    assert (host.root / STATE / "records.sqlite").exists()
    assert (host.root / "etc/reconciler/settings.yaml").exists()
    assert not (host.root / "opt/reconciler").exists()
    assert host.show(DAEMON, "LoadState") == "not-found"


def test_a_second_installation_goes_on_where_the_first_one_ended(host: Machine) -> None:
    host.run(*INSTALL, find_package(host, NEWER))
    wait_until_well(host)
    assert list_replicas(host)


def test_a_purge_names_what_it_removes_and_leaves_volumes_and_settings(host: Machine) -> None:
    volumes = host.root / STATE / "host/aws-us-west-2/volumes"
    before = sorted(volumes.rglob("*"))
    assert before
    (host.root / "etc/reconciler/settings.yaml").write_text(f"{SETTINGS}state: /srv/state\n")
    printed = host.run("dpkg", "--purge", "gitops-reconciler")
    assert "removing what is in /var/lib/reconciler: records" in printed
    assert f"  /{STATE}/host/aws-us-west-2/volumes\n" in printed
    assert "the state directory of the settings, /srv/state, stays" in printed
    assert "/etc/reconciler stays" in printed
    assert sorted(volumes.rglob("*")) == before
    assert [path.name for path in (host.root / STATE).iterdir()] == ["host"]
    assert [path.name for path in (host.root / STATE / "host").iterdir()] == ["aws-us-west-2"]
    assert (host.root / "etc/reconciler/settings.yaml").exists()
    assert not list((host.root / "etc/systemd/system/multi-user.target.wants").glob("reconciler*"))
