"""The service unit: understood by systemd to the last key, and as closed as the daemon's work allows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.builtin import FILES_EACH
from reconciler.engines.host.dataplane.choice import proxy_directory
from reconciler.engines.host.dataplane.haproxy.config import CONFIG, MASTER_SOCKET, PID
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.runtimes.replicas_service import ENV_REPLICAS_UNIT
from reconciler.settings import load_settings
from tests.project.tree import ROOT
from tests.support.programs import tool

REPLICAS = "systemd/reconciler-replicas.service"
EXPOSURE = 2.0
"""On systemd's scale from 0 to 10; 1.5 as shipped, most of which is the network that remotes need."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with programs that exist here, since systemd complains about those that do not."""
    text = (ROOT / "systemd/reconciler.service").read_text()
    copy = tmp_path / "reconciler.service"
    copy.write_text(text.replace("=/usr/bin/reconciler ", f"={shutil.which('reconciler') or sys.executable} "))
    shutil.copy(ROOT / REPLICAS, tmp_path)
    return copy


def directives() -> dict[str, str]:
    """The unit's settings by name; the last one of a name wins."""
    lines = (ROOT / "systemd/reconciler.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]\w+=", line))


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, or skip where there is none."""
    command = [tool("systemd-analyze", "systemd"), "--no-pager", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_systemd_accepts_the_unit_without_a_warning(unit: Path) -> None:
    answer = analyze("verify", unit)
    # An unknown key is only a line on stderr; the exit code stays 0.
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("name", ["reconciler-haproxy@here.service", "reconciler-haproxy@here.path"])
def test_systemd_accepts_the_units_of_haproxy_without_a_warning(tmp_path: Path, name: str) -> None:
    for kind in ("service", "path"):
        text = (ROOT / f"systemd/reconciler-haproxy@.{kind}").read_text()
        copy = tmp_path / f"reconciler-haproxy@here.{kind}"
        copy.write_text(text.replace("=/usr/sbin/haproxy ", f"={sys.executable} "))
    answer = analyze("verify", tmp_path / name)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_haproxy_has_one_capability_and_exposes_little(tmp_path: Path) -> None:
    unit = tmp_path / "reconciler-haproxy@here.service"
    shutil.copy(ROOT / "systemd/reconciler-haproxy@.service", unit)
    lines = unit.read_text().splitlines()
    assert [each for each in lines if "CAP_" in each] == [
        "AmbientCapabilities=CAP_NET_BIND_SERVICE",
        "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
    ]
    answer = analyze("security", "--offline=true", unit)
    score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", answer.stdout)
    assert score, answer.stderr
    assert float(score[1]) <= EXPOSURE


def test_the_unit_of_haproxy_starts_it_as_the_daemon_does() -> None:
    text = (ROOT / "systemd/reconciler-haproxy@.service").read_text()
    assert f"haproxy -Ws -S unix@./{MASTER_SOCKET},mode,600 -f {CONFIG} -p {PID}\n" in text
    directory = proxy_directory(Path(f"/var/lib/{directives()['StateDirectory']}/host/%i"))
    assert f"WorkingDirectory={directory}\n" in text
    assert f"PathExists={directory / CONFIG}\n" in (ROOT / "systemd/reconciler-haproxy@.path").read_text()


def test_the_unit_exposes_little(unit: Path) -> None:
    answer = analyze("security", "--offline=true", unit)
    score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", answer.stdout)
    assert score, answer.stderr
    assert float(score[1]) <= EXPOSURE


def test_the_documented_ways_to_relax_the_unit_are_understood_too(unit: Path) -> None:
    page = (ROOT / "docs/host.md").read_text()
    (drop_in,) = re.findall(r"^```ini\n(.*?)^```$", page, re.M | re.S)
    single = re.findall(r"\| `([A-Z]\w+=\S+)` \|$", page, re.M)
    assert len(single) > 3
    folder = unit.with_name(f"{unit.name}.d")
    folder.mkdir()
    (folder / "50-root.conf").write_text(drop_in + "\n".join(single) + "\n")
    answer = analyze("verify", unit)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_the_documented_units_for_podman_are_understood_too(unit: Path) -> None:
    page = (ROOT / "docs/containers.md").read_text()
    for_socket, plain, confined_less = re.findall(r"^```ini\n(.*?)^```$", page, re.M | re.S)
    socket = unit.with_name("podman.socket")
    socket.write_text("[Socket]\nListenStream=/run/podman/podman.sock\n")
    unit.with_name("podman.service").write_text(f"[Service]\nExecStart={sys.executable}\n")
    for name, drop_in in ((socket.name, for_socket), (unit.name, plain + confined_less)):
        folder = unit.with_name(f"{name}.d")
        folder.mkdir()
        (folder / "50-podman.conf").write_text(drop_in)
    for each in (unit, socket):
        answer = analyze("verify", each)
        assert (answer.returncode, answer.stderr) == (0, "")


def test_a_restart_leaves_workloads_alone() -> None:
    unit = directives()
    assert unit["KillMode"] == "process"
    assert unit["OOMPolicy"] == "continue"
    assert unit["RemoveIPC"] == "false", "secrets lie in /dev/shm"
    assert "PrivateTmp" not in unit, "it goes when the daemon stops"


def test_the_data_plane_may_open_more_files_than_systemd_allows() -> None:
    soft, hard = map(int, directives()["LimitNOFILE"].split(":"))
    page = (ROOT / "docs/host.md").read_text()
    assert f"{soft:,} files (`LimitNOFILE`), so {soft // FILES_EACH:,} connections" in page
    assert f"{soft:,} by its unit, which programs may raise to {hard:,}" in page


def test_the_unit_and_the_sample_settings_name_the_same_state_directory() -> None:
    settings = load_settings(ROOT / "systemd/settings.yaml")
    assert str(settings.state) == f"/var/lib/{directives()['StateDirectory']}"


def test_settings_shown_as_comments_are_right_too(tmp_path: Path) -> None:
    text = (ROOT / "systemd/settings.yaml").read_text()
    everything = tmp_path / "settings.yaml"
    everything.write_text(re.sub(r"(?m)^( *)#(?=\S|  )", r"\1", text))
    settings = load_settings(everything)
    assert [source.name for source in settings.sources] == ["main", "platform", "partner"]


def test_a_reload_needs_no_program_that_hosts_may_lack() -> None:
    assert directives()["ExecReload"] == "/bin/sh -c 'kill -HUP $MAINPID'"


def test_the_daemon_uses_the_service_of_workloads() -> None:
    _, _, path = directives()["Environment"].partition(f"{ENV_REPLICAS_UNIT}=")
    assert path == Path(REPLICAS).name
    text = (ROOT / REPLICAS).read_text()
    assert {"User=reconciler", "Delegate=yes", "RemainAfterExit=yes", "OOMPolicy=continue"} <= set(text.splitlines())
    assert text.splitlines()[-1] == f"TimeoutStopSec={Timing().total:g}"


def test_the_user_of_the_unit_is_the_one_that_sysusers_makes() -> None:
    sysusers = ROOT / "systemd/reconciler.sysusers.conf"
    assert directives()["User"] == directives()["Group"] == "reconciler"
    command = [tool("systemd-sysusers", "systemd"), "--dry-run", str(sysusers)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert re.search(r"(?m)^u reconciler ", sysusers.read_text())
