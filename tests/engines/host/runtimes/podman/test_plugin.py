"""What is known of Podman without a connection to it, and the sentences about what it does not enforce."""

from __future__ import annotations

import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.runtimes.plugins import runtime_plugin, runtimes_in_use
from reconciler.engines.host.runtimes.podman.capabilities import Capabilities
from reconciler.engines.host.runtimes.podman.limitations import list_limitations
from reconciler.engines.host.runtimes.podman.plugin import socket_path
from reconciler.engines.host.runtimes.podman.spec import Ulimits
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.model.kinds.workload import Command, External, Firewall, Options
from reconciler.settings import PodmanSettings, Settings
from tests.engines.host.runtimes.podman.kit import KEY

PODMAN = Capabilities(
    version="5.4.2",
    architecture="amd64",
    rootless=False,
    direct=True,
    publishes_ports=True,
    controllers=frozenset({"cpu", "memory", "pids"}),
    cgroup_manager="systemd",
    cgroup_version="v2",
    runtime_name="crun",
    runtime_path="/usr/bin/crun",
    seccomp=True,
    ulimits=Ulimits(1024, 1024),
)


def wanted(**fields: Any) -> WorkloadSpec:
    plain = WorkloadSpec(KEY, Type.STANDARD, 1, "digest", "hash", 1, (ContainerSpec("main", "app:1"),), Options())
    return msgspec.structs.replace(plain, **fields)


def sentences(known: Capabilities | None, **fields: Any) -> str:
    return "\n".join(list_limitations(wanted(**fields), known))


def test_what_no_podman_enforces_is_foreseen_without_one() -> None:
    fields = {"containers": (ContainerSpec("main", "app:1", ports=(80,)),)}
    found = sentences(None, **fields)
    assert found.startswith("inboundAllowCIDR applies to the ingress")
    assert found == "\n".join(runtime_plugin("podman").foreseen_limitations(wanted(**fields)))
    everyone = Firewall(External(("0.0.0.0/0",), outbound_allow_hostname=("example.com", "*.example.com")))
    assert sentences(None, **fields, firewall=everyone) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"controllers": frozenset()}, "cannot limit CPU and memory and the number of processes"),
        (
            {"controllers": frozenset({"cpu", "pids"})},
            "cannot limit memory here: Podman's user may not use these control groups",
        ),
        ({"publishes_ports": False}, "The firewall is not enforced: the containers reach whatever this host reaches"),
        ({"seccomp": False}, "System calls are not filtered"),
        ({"architecture": "arm64"}, "The blocked ports are not occupied"),
        ({"direct": False}, "user 1337 still has a network"),
        ({"direct": False}, "leaves two processes for a while"),
    ],
)
def test_each_thing_that_this_podman_lacks_is_a_sentence(change: dict[str, Any], words: str) -> None:
    container = ContainerSpec("main", "app:1", pre_stop=Command(("drain",)))
    assert words not in sentences(PODMAN, containers=(container,))
    assert words in sentences(msgspec.structs.replace(PODMAN, **change), containers=(container,))


def test_the_socket_is_that_of_the_settings_or_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings("acme", (), Path("/state"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert socket_path(settings) == Path("/run/podman/podman.sock")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert socket_path(settings) == Path("/run/user/1000/podman/podman.sock")
    own = msgspec.structs.replace(settings, podman=PodmanSettings(Path("/own.sock")))
    assert socket_path(own) == Path("/own.sock")


@pytest.mark.parametrize(
    ("answer", "available"),
    [
        (b"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\n\r\nOK", True),
        (b"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\nServer: Docker/20.10.24 (linux)\r\n\r\nOK", False),
        (b"HTTP/1.0 500 No\r\n", False),
    ],
    ids=("podman", "docker", "broken"),
)
def test_podman_is_available_where_its_socket_answers(tmp_path: Path, answer: bytes, available: bool) -> None:
    path = tmp_path / "sock"
    settings = Settings("acme", (), tmp_path, podman=PodmanSettings(path))
    assert not runtime_plugin("podman").is_available(settings)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1000)
                link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert runtime_plugin("podman").is_available(settings) is available
        thread.join()
    problems = runtime_plugin("podman").check_host(settings, Path("/proc"), True)
    assert any(str(path) in each.message and each.fatal for each in problems) or not Path("/usr/bin/podman").exists()


def test_a_location_is_in_use_as_long_as_a_container_has_a_directory(tmp_path: Path) -> None:
    assert "podman" not in runtimes_in_use(tmp_path)
    (tmp_path / "podman" / "shop" / "web" / "web-x").mkdir(parents=True)
    assert "podman" in runtimes_in_use(tmp_path)


def test_doctor_names_the_packages_for_object_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings("acme", (), Path("/state"))

    def advice() -> list[str]:
        return [each.advice for each in runtime_plugin("podman").check_host(settings, Path("/proc"), own_user=False)]

    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/bin/{name}")
    assert "apt-get install rclone fuse3" not in advice()
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == "rclone" else f"/usr/bin/{name}")
    assert "apt-get install rclone fuse3" in advice()


def test_doctor_reports_who_can_read_secrets_in_variables(tmp_path: Path) -> None:
    settings = Settings("acme", (), tmp_path, podman=PodmanSettings(tmp_path / "sock"))
    (problem,) = [
        each
        for each in runtime_plugin("podman").check_host(settings, Path("/proc"), True)
        if "secrets in variables" in each.message
    ]
    assert not problem.fatal
    assert "mount secrets as files" in problem.advice
