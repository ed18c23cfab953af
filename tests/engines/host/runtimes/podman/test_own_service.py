"""The Podman service that the daemon starts itself: it answers, comes back when killed, and ends without containers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.host.runtimes.plugins import runtime_plugin
from reconciler.engines.host.runtimes.podman.api import own_service
from reconciler.engines.host.runtimes.podman.api.own_service import OwnService
from reconciler.engines.host.runtimes.podman.runtime import PodmanOptions, PodmanRuntime
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.settings import PodmanSettings, Settings
from tests.engines.host.runtimes.podman.kit import KEY, PodmanHarness, shell
from tests.support.podman import PodmanService, podman_service
from tests.support.waiting import until


def harness_of(root: Path) -> tuple[PodmanHarness, OwnService]:
    """A runtime that starts its own service."""
    own = OwnService(root.resolve())
    harness = PodmanHarness(root, own.socket, None, None)
    harness.runtime = PodmanRuntime(root, "here", SystemClock(), own.socket, options=PodmanOptions(own=own))
    return harness, own


def use_storage_of(service: PodmanService, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `podman` without options have the storage of ``service``."""
    top = service.folder
    storage, containers = folder / "storage.conf", folder / "containers.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{top}/root"\nrunroot = "{top}/run"\n')
    text = (top / "containers.conf").read_text()
    engine = f'[engine]\ntmp_dir = "{top}/tmp"\nvolume_path = "{top}/volumes"\nevents_logger = "file"\n'
    engine += 'cgroup_manager = "cgroupfs"\nruntime = "runc"\n'
    text = text.replace("[engine]\n", engine).replace("[network]\n", f'[network]\nnetwork_config_dir = "{top}/net"\n')
    containers.write_text(text)
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    monkeypatch.setenv("CONTAINERS_CONF", str(containers))


def find_services(path: Path) -> list[int]:
    """The processes that serve at the socket ``path``."""
    address = os.fsencode(f"unix://{path}")
    services = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if address in words and words[0].endswith(b"podman"):
            services.append(int(file.parent.name))
    return services


def test_the_daemon_starts_a_service_that_comes_back_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        harness, own = harness_of(tmp_path / "here")
        await harness.runtime.open(harness.ended.append)
        await harness.runtime.start(shell("echo begun; exec sleep 1000"))
        await harness.wrote("begun")

        [first] = find_services(own.socket)
        os.kill(first, signal.SIGKILL)
        await until(lambda: bool(find_services(own.socket)), "a service again")
        assert (await harness.runtime.exec((await harness.runtime.list())[0].place, ["echo", "x"], 10)).code == 0

        await harness.runtime.close()
        assert find_services(own.socket) == []
        other, _ = harness_of(tmp_path / "here")
        await other.runtime.open(other.ended.append)
        assert (await other.running()).alive, "containers run on without a service"
        await other.runtime.remove(KEY, "r")
        await other.runtime.close()

    with podman_service() as service:
        use_storage_of(service, tmp_path, monkeypatch)
        asyncio.run(story())


def test_a_service_that_cannot_start_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = "#!/bin/sh\necho first >&2\necho 'Error: no subuid ranges' >&2\nexit 125\n"
    put_podman(tmp_path / "bin", failing, monkeypatch)
    with pytest.raises(EngineError, match="does not start: Error: no subuid ranges") as refused:
        asyncio.run(OwnService(tmp_path).start())
    assert refused.value.reason is Reason.RUNTIME_UNAVAILABLE


LISTENS = """#!/usr/bin/env python3
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[-1].removeprefix("unix://"))
listener.listen()
time.sleep(1000)
"""


def put_podman(folder: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``program`` be what `podman` runs."""
    folder.mkdir()
    (folder / "podman").write_text(program)
    (folder / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def test_a_service_that_never_answers_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_podman(tmp_path / "bin", f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 1000\n", monkeypatch)
    for seconds in (1.0, 10.0, 60.0):  # a busy machine may not even run the shell so soon
        monkeypatch.setattr(own_service, "_START_SECONDS", seconds)
        own = OwnService(tmp_path / "here")
        with pytest.raises(EngineError, match="does not start: it says nothing"):
            await own.start()
        if (tmp_path / "pid").exists():
            break
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


async def test_a_service_of_the_former_daemon_is_followed_by_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_podman(tmp_path / "bin", LISTENS, monkeypatch)
    own = OwnService(tmp_path / "here")
    own.socket.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as former:
        former.bind(str(own.socket))
        former.listen()
        await own.start()
        assert own._process is None
    await until(lambda: own_service.is_listening(own.socket), "a service of its own")
    await own.stop()
    assert not own_service.is_listening(own.socket)


async def test_a_path_too_long_for_a_socket_is_replaced_by_one_of_the_runtime_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_podman(tmp_path / "bin", LISTENS, monkeypatch)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    one, other = (OwnService(tmp_path / name / ("x" * 100)) for name in ("one", "other"))
    assert one.socket.parent == tmp_path / "reconciler-podman"
    assert one.socket != other.socket
    await one.start()
    assert own_service.is_listening(one.socket)
    assert one.socket.parent.stat().st_mode & 0o777 == 0o700
    await one.stop()


def test_a_path_too_long_for_a_socket_names_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(EngineError, match=r"set `podman.socket`, or a shorter `state`"):
        asyncio.run(OwnService(tmp_path / ("x" * 100)).start())


def test_podman_without_a_service_is_available_unless_the_settings_name_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, settings = runtime_plugin("podman"), Settings("acme", (), tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(programs))
    if not Path("/run/podman/podman.sock").exists():
        assert not plugin.is_available(settings)
    for name in ("podman", "conmon", "netavark", "crun", "runc", "newuidmap"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    assert plugin.is_available(settings)
    named = Settings("acme", (), tmp_path, podman=PodmanSettings(tmp_path / "sock"))
    assert not plugin.is_available(named)
