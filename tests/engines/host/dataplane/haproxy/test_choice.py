"""Which data plane a location uses, with the HAProxy that is installed; and an address that outlasts a change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from reconciler.clock import SystemClock
from reconciler.engines.host.dataplane.builtin import BuiltinDataPlane
from reconciler.engines.host.dataplane.choice import choose_dataplane, end_former, make_dataplane
from reconciler.engines.host.dataplane.haproxy import program
from reconciler.engines.host.dataplane.haproxy.config import CONFIG
from reconciler.engines.host.dataplane.haproxy.discovery import find_master
from reconciler.engines.host.dataplane.haproxy.program import Program, find_program
from reconciler.engines.host.dataplane.limitations import haproxy_limitations
from reconciler.engines.host.dataplane.ports import ServicePorts
from reconciler.engines.host.dataplane.protocol import DataPlane, PlaneContext
from reconciler.engines.host.signals import LocationSignals
from reconciler.model.kinds.workload import Retries
from reconciler.settings import HoldSettings, HostSettings, LocationSettings, Settings
from tests.engines.host.dataplane.haproxy.kit import KEY, OTHER, SERVICE, Plane, WebReplica, end, get, play
from tests.engines.host.dataplane.kit import until
from tests.support.programs import tool

NEW = "HAProxy version 3.0.1-1 2024/06/10\nBuilt with Lua version : Lua 5.4.6\n"
OLD = "HAProxy version 2.4.3 2021/08/17\nBuilt with Lua version : Lua 5.3.6\n"
PLAIN = "HAProxy version 2.6.12-1+deb12u4 2026/10/17\nBuilt without Lua support\n"


@pytest.fixture(name="install")
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is searched first; the program ``haproxy`` in it is a script."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    return directory / "haproxy"


def script(path: Path, text: str) -> None:
    """Write an executable script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def versioned(path: Path, text: str) -> None:
    """Let ``haproxy -vv`` print ``text``."""
    script(path, f"cat <<'END'\n{text}END")


def settings_in(path: Path) -> Settings:
    """A location for each data plane; ``here`` names none."""
    bound = {name: LocationSettings("host", dataplane=name) for name in ("auto", "haproxy", "builtin")}
    return Settings("acme", (), path, locations={"here": LocationSettings("host"), **bound})


@pytest.mark.parametrize(
    ("text", "chosen", "why"),
    [
        (NEW, "haproxy", ""),
        (OLD, "builtin", "HAProxy 2.4.3 is installed and not used: 2.6 or newer is needed"),
        (
            PLAIN,
            "builtin",
            "HAProxy 2.6.12-1+deb12u4 is installed and not used: it lacks Lua, so requests do not wait for the end of "
            "a hold, nor outlast a reload",
        ),
        (
            "something else\n",
            "builtin",
            "HAProxy of an unknown version is installed and not used: `{path} -vv` printed no version: it ended with "
            "code 0",
        ),
    ],
)
def test_auto_is_the_default_and_takes_haproxy_if_it_does_all_that_is_needed(
    tmp_path: Path, install: Path, text: str, chosen: str, why: str
) -> None:
    versioned(install, text)
    settings = settings_in(tmp_path)
    names = ("here", "auto", "haproxy", "builtin")
    why = why.format(path=install)
    assert [choose_dataplane(settings, name) for name in names] == [
        (chosen, why),
        (chosen, why),
        ("haproxy", ""),
        ("builtin", ""),
    ]
    ports = ServicePorts(tmp_path / "ports.json", settings.host)
    context = PlaneContext(ports, settings.host.hold, SystemClock(), LocationSignals())
    with capture_logs() as lines:
        assert make_dataplane(settings, "here", tmp_path, context).name == chosen
    assert [each["why"] for each in lines] == [why] * bool(why)


@pytest.mark.parametrize("broken", ["exit 1", "kill -SEGV $$"])
def test_auto_passes_over_a_haproxy_that_does_not_run(tmp_path: Path, install: Path, broken: str) -> None:
    script(install, broken)
    found = choose_dataplane(settings_in(tmp_path), "here")
    assert found.name == "builtin"
    assert found.problem.startswith("HAProxy of an unknown version is installed")


def test_auto_without_haproxy_is_the_built_in_data_plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(program, "SEARCH", "")
    assert find_program() is None
    assert choose_dataplane(settings_in(tmp_path), "here") == ("builtin", "")


def test_facts_of_the_program_are_read(install: Path) -> None:
    versioned(install, NEW)
    found = find_program()
    assert found is not None
    assert (found.version, found.text, found.lua, found.defect) == ((3, 0), "3.0.1-1", True, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [(OLD, "only HAProxy 2.4.3 is"), ("", "-vv` printed no version: it ended with code 0; ")],
)
def test_without_a_usable_haproxy_workloads_have_the_reason(tmp_path: Path, install: Path, text: str, why: str) -> None:
    versioned(install, text)

    async def story(plane: Plane) -> None:
        plane.dataplane.publish(SERVICE)
        await until(lambda: plane.dataplane.error(KEY))
        assert why in plane.dataplane.error(KEY)
        assert plane.dataplane.address(KEY) == ""

    play(lambda: Plane(tmp_path), story)


def test_a_refused_configuration_leaves_the_former_one_in_force(tmp_path: Path, install: Path) -> None:
    real = tool("haproxy", "haproxy")
    flag = tmp_path / "refuse"
    check = f'if [ "$1" = -c ] && [ -e {flag} ]; then echo "[ALERT] (1) : config : no such keyword" >&2; exit 1; fi'
    without_lua = f'if [ "$1" = -vv ]; then {real} -vv | grep -v Lua; exit; fi'
    script(install, f'{check}\n{without_lua}\nexec {real} "$@"')

    async def story(plane: Plane) -> None:
        address = await plane.address(SERVICE, await WebReplica("a").start())
        flag.touch()
        before = (plane.directory / CONFIG).read_bytes()
        plane.dataplane.publish(SERVICE.__class__(OTHER, 8080))
        await until(lambda: plane.dataplane.error(OTHER))
        error = plane.dataplane.error(KEY)
        assert error == "HAProxy refused its configuration, the former one stays in force: config : no such keyword"
        assert (plane.directory / CONFIG).read_bytes() == before
        assert (await get(address)).body == "a"
        flag.unlink()
        plane.dataplane.publish(SERVICE.__class__(OTHER, 8080, timeout_seconds=6))
        await until(lambda: plane.dataplane.address(OTHER) and not plane.dataplane.error(KEY))
        # This one was built without Lua: nothing can wait.
        [_, lacking] = haproxy_limitations(SERVICE, find_program(), outside=False)
        assert lacking.endswith("lacks Lua.")
        assert (await get(plane.dataplane.address(OTHER))).status == 503

    try:
        play(lambda: Plane(tmp_path), story)
    finally:
        end(tmp_path)


DEFAULT = Retries().retry_on
"""What a manifest without requestRetryPolicy retries."""


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, ""),
        ({"retry_on": DEFAULT}, ""),
        ({"retry_on": DEFAULT, "protocol": "http2"}, "refused-stream"),
        ({"retry_on": DEFAULT, "protocol": "grpc"}, "refused-stream, unavailable, cancelled, resource-exhausted"),
        ({"retry_on": DEFAULT, "protocol": "grpc", "retries": 0}, ""),
        ({"retry_on": DEFAULT, "protocol": "tcp"}, ""),
        ({"retry_on": ("cancelled", "connect-failure")}, "cancelled"),
        ({"retry_on": ("5xx", "503", "429", "envoy-ratelimited")}, "429, envoy-ratelimited"),
        ({"retry_on": ("429", "421", "409"), "version": (3, 1)}, "409"),
        ({"retry_on": ("reset", "reset-before-request", "gateway-error", "refused-stream")}, ""),
    ],
)
def test_failures_that_haproxy_does_not_retry_are_reported(changes: dict[str, Any], named: str) -> None:
    program = Program("/usr/sbin/haproxy", changes.pop("version", (2, 6)), "", lua=True)
    found = list(haproxy_limitations(msgspec.structs.replace(SERVICE, **changes), program, outside=True))
    expected = f"Requests are not tried again after {named}: HAProxy does not retry these failures."
    assert found == ([expected] if named else [])


def test_auto_stays_with_a_haproxy_that_serves_until_its_program_is_removed(
    tmp_path: Path, install: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, fail = tool("haproxy", "haproxy"), tmp_path / "fail"
    script(install, f'if [ "$1" = -vv ] && [ -e {fail} ]; then exit 3; fi\nexec {real} "$@"')
    settings = settings_in(tmp_path)
    root = tmp_path / "host" / "here"
    served: list[tuple[str, int | None]] = []
    failure = f"`{install} -vv` printed no version: it ended with code 3"

    def made() -> DataPlane:
        """The data plane of a daemon that starts now."""
        ports = ServicePorts(root / "dataplane" / "ports.json", settings.host)
        context = PlaneContext(ports, settings.host.hold, SystemClock(), LocationSignals())
        found = make_dataplane(settings, "here", root, context)
        end_former(found, root)
        return found

    async def first(plane: Plane) -> None:
        served.append((await plane.address(SERVICE, await WebReplica("a").start()), find_master(plane.directory)))

    async def again(plane: Plane) -> None:
        [(address, master)] = served
        await plane.ready(await WebReplica("b").start())
        plane.dataplane.publish(SERVICE)
        await until(lambda: plane.dataplane.error(KEY))
        assert plane.dataplane.error(KEY) == f"{failure}; it is tried again, and a HAProxy that runs goes on as it is"
        fail.unlink()
        await until(lambda: plane.dataplane.address(KEY) == address and not plane.dataplane.error(KEY))
        assert (await get(address)).body == "b"
        assert find_master(plane.directory) == master

    try:
        play(lambda: Plane(root / "dataplane"), first)
        fail.touch()
        # A new daemon has not asked the program yet.
        monkeypatch.setattr(program, "_programs", {})
        with capture_logs() as lines:
            assert made().name == "haproxy"
        assert [each["why"] for each in lines] == [f"{failure}; HAProxy stays the data plane, and is tried again"]
        play(lambda: Plane(root / "dataplane"), again)
        # Without the program, the running HAProxy could neither be reloaded nor started again.
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(program, "SEARCH", "")
        assert made().name == "builtin"
        asyncio.run(until(lambda: find_master(root / "dataplane" / "haproxy") is None))
    finally:
        end(root / "dataplane")


def test_an_address_outlasts_a_change_of_the_data_plane(tmp_path: Path) -> None:
    tool("haproxy", "haproxy")
    addresses: list[str] = []

    async def story(plane: Plane) -> None:
        addresses.append(await plane.address(SERVICE, await WebReplica("a").start()))

    async def builtin() -> None:
        ports = ServicePorts(tmp_path / "dataplane" / "ports.json", HostSettings())
        context = PlaneContext(ports, HoldSettings(), Plane(tmp_path).clock, LocationSignals())
        plane = BuiltinDataPlane(context)
        end_former(plane, tmp_path)
        plane.publish(SERVICE)
        running = asyncio.create_task(plane.run())
        await until(lambda: plane.address(KEY))
        addresses.append(plane.address(KEY))
        running.cancel()
        await plane.close()

    asyncio.run(builtin())
    play(lambda: Plane(tmp_path / "dataplane"), story)
    asyncio.run(builtin())
    assert len(set(addresses)) == 1


def test_the_reason_is_shown_if_haproxy_cannot_start_and_it_is_tried_again(tmp_path: Path, install: Path) -> None:
    real = tool("haproxy", "haproxy")
    flag = tmp_path / "fail"
    alert = "[ALERT]    (1) : cannot bind (Permission denied)"
    fail = f'if [ "$1" = -W ] && [ -e {flag} ]; then echo "{alert}" >&2; exit 1; fi'
    script(install, f'{fail}\nexec {real} "$@"')
    flag.touch()

    async def story(plane: Plane) -> None:
        plane.dataplane.publish(SERVICE)
        await until(lambda: plane.dataplane.error(KEY))
        error = plane.dataplane.error(KEY)
        assert error.startswith("HAProxy cannot be started: cannot bind (Permission denied); a port below 1024 needs ")
        assert error.endswith(": systemctl enable --now reconciler-haproxy@here.path")
        # It is shown until the next attempt.
        await plane.dataplane.synchronize(KEY)
        assert plane.dataplane.error(KEY) == error
        flag.unlink()
        await until(lambda: plane.dataplane.address(KEY))
        assert plane.dataplane.error(KEY) == ""

    try:
        play(lambda: Plane(tmp_path), story)
    finally:
        end(tmp_path)
