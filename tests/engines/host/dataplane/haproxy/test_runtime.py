"""Backends that come and go while HAProxy runs: what is decided, and that no request is lost by it.

Before version 3.4 the same changes are reloads, so all of this is tested with either version.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.dataplane.haproxy.config import (
    HTTP,
    SELF,
    Backend,
    ProxyOptions,
    Server,
    backend_name,
)
from reconciler.engines.host.dataplane.haproxy.config_file import (
    SHARE,
    list_changed_backends,
    needs_no_reload,
    needs_of,
    next_load,
)
from reconciler.engines.host.dataplane.haproxy.live import (
    LiveBackend,
    LiveServer,
    list_add_commands,
    list_commands,
    list_remove_commands,
)
from reconciler.engines.host.dataplane.haproxy.master import ANSWER_SECONDS, Master
from reconciler.engines.host.dataplane.haproxy.program import find_program
from reconciler.engines.host.dataplane.haproxy.rendering.render import LoadedConfig
from reconciler.engines.host.dataplane.ports import ServicePorts
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.model.key import Key, Kind
from reconciler.settings import HostSettings
from tests.engines.host.dataplane.haproxy.kit import KEY, OTHER, SERVICE, Plane, WebReplica, get, play
from tests.engines.host.dataplane.kit import PATIENCE, PORT, until
from tests.support.cases import cases
from tests.support.programs import adjacent_ports


def find_free(_count: int, _bound: Collection[int]) -> list[int]:
    """As ServicePorts.spare."""
    return [18_001, 18_002, 18_003]


def backends_of(by_name: dict[str, dict[str, Any]]) -> list[Backend]:
    """The workloads of a case; the first is at port 18000, and others at free ones."""
    backends: list[Backend] = []
    for number, (name, case) in enumerate(by_name.items()):
        fields = dict(case)
        replicas, port = fields.pop("replicas", ()), fields.pop("port", 0)
        split = tuple(fields.pop("split", {}).items())
        service = msgspec.convert(
            fields | {"key": Key(Kind.WORKLOAD, "shop", name), "port": PORT}, Service, strict=True
        )
        servers = tuple(Server(f"a-{at}", address) for at, address in enumerate(replicas))
        backends.append(
            Backend(service, port or (18_000 if not number else _free(service, number)), servers, split=split)
        )
    return backends


def _free(service: Service, number: int) -> int:
    return (18_010 if service.protocol == "tcp" else 18_000) + number


@pytest.mark.parametrize("case", cases("dataplane/runtime.yaml"))
def test_what_brings_a_process_to_other_workloads(case: dict[str, Any]) -> None:
    options = ProxyOptions("here", runtime=case.get("runtime", True))
    before = needs_of(options, backends_of(case["loaded"]))
    loaded = next_load(options, LoadedConfig(), before, find_free)
    backends = backends_of(case["wanted"])
    needs = needs_of(options, backends)
    live = {
        name: LiveBackend(
            0,
            sum(servers.values()),
            0,
            {value: _live_server(value, count) for value, count in servers.items()},
            name not in case.get("unpublished", ()),
        )
        for name, servers in case["live"].items()
    }
    reload = not needs_no_reload(options, loaded, needs) or bool(
        list_changed_backends(live, before.shapes, needs.shapes)
    )
    assert reload == case.get("reload", False)
    texts = [*list_add_commands(options, loaded, backends, live), *list_commands(backends, live)]
    if not reload:
        texts += chain.from_iterable(
            list_remove_commands(name, live[name]) for name in live.keys() - needs.shapes.keys()
        )
    assert [re.sub("-[0-9a-f]{12}$", "-0", text) for text in texts] == case.get("commands", [])


def _live_server(name: str, count: int) -> LiveServer:
    address = "127.0.0.1:18000" if name == SELF else "127.0.0.1:20001"
    return LiveServer(address, 0, open=count, ready=True, ends=False, proven=True)


def test_many_workloads_have_more_ports_for_others() -> None:
    options = ProxyOptions("here", runtime=True)
    counts: list[int] = []

    def find(count: int, _bound: Collection[int]) -> list[int]:
        counts.append(count)
        return []

    many = [Backend(Service(Key(Kind.WORKLOAD, "shop", f"w{each}"), PORT), 18_000 + each) for each in range(400)]
    loaded = next_load(options, LoadedConfig(), needs_of(options, many), find)
    assert counts == [400 // SHARE]
    assert len(loaded.ports[HTTP]) == 400


def test_ports_for_workloads_to_come_are_those_of_no_workload(tmp_path: Path) -> None:
    ports = ServicePorts(tmp_path / "ports.json", HostSettings())
    first = ports.spare(3, ())
    ports.reserve(KEY, first[0])
    again = ports.spare(3, {*first, 1})
    assert again[:2] == sorted(first[1:])
    assert len({*again, first[0]}) == 4
    assert ports.assign(OTHER, first) in first[1:]
    ports.release(OTHER)
    assert ServicePorts(tmp_path / "ports.json", HostSettings()).assign(OTHER, first) == ports.assign(OTHER, first)


def test_where_few_ports_are_left_some_are_for_workloads_to_come(tmp_path: Path) -> None:
    first = adjacent_ports(8)
    settings = HostSettings(first_service_port=first, last_service_port=first + 7)
    assert ServicePorts(tmp_path / "ports.json", settings).spare(16, ())


@pytest.fixture(scope="module", name="path")
def one_path(shared_path: Path) -> Path:
    """All tests here have the same HAProxy."""
    return shared_path


def without_reload() -> bool:
    """Whether the HAProxy of this test run takes backends at run time."""
    program = find_program()
    assert program is not None
    return program.runtime


def test_workloads_come_and_go(path: Path) -> None:
    async def story(plane: Plane) -> None:
        await plane.address(SERVICE, await WebReplica("a").start())
        worker, replica = plane.worker, await WebReplica("b").start()
        other = await plane.address(msgspec.structs.replace(SERVICE, key=OTHER), replica)
        assert (await get(other)).body == "b"
        assert (plane.worker == worker) is without_reload()
        replica.gate.clear()
        slow = asyncio.create_task(get(other))
        await until(lambda: replica.open)
        plane.dataplane.withdraw(OTHER)
        port = int(other.rpartition(":")[2])
        await until(lambda: not plane.dataplane._proxy.serves(backend_name(OTHER), port))
        assert (await get(other)).status == 0
        replica.gate.set()
        assert (await slow).body == "b"
        async with asyncio.timeout(PATIENCE):
            while f"{backend_name(OTHER)}," in await plane.command("show stat -1 6 -1"):
                plane.dataplane.reroute()
                await plane.dataplane.traffic()
                assert plane.dataplane.error(KEY) == ""
        assert (plane.worker == worker) is without_reload()

    play(lambda: Plane(path), story)


def test_a_later_daemon_goes_on_and_a_new_process_has_what_came_at_run_time(path: Path) -> None:
    async def first(plane: Plane) -> None:
        await plane.address(SERVICE, await WebReplica("a").start())
        await plane.address(msgspec.structs.replace(SERVICE, key=OTHER), await WebReplica("b").start())

    play(lambda: Plane(path), first)

    async def story(plane: Plane) -> None:
        worker = plane.worker
        plane.dataplane.publish(msgspec.structs.replace(SERVICE, key=OTHER))
        address = await plane.address(SERVICE, await WebReplica("c").start())
        await until(lambda: plane.dataplane.address(OTHER))
        assert (await get(address)).body == "c"
        assert plane.worker == worker, "there was nothing to reload"
        os.killpg(plane.master, signal.SIGKILL)
        await until(lambda: plane.events)
        await until(lambda: plane.dataplane.address(OTHER))
        await plane.ready(await WebReplica("d").start(), key=OTHER)
        async with asyncio.timeout(PATIENCE):
            while (await get(plane.dataplane.address(OTHER))).body != "d":
                await asyncio.sleep(0.01)

    play(lambda: Plane(path), story)


def test_changed_options_of_a_workload_are_a_reload(path: Path) -> None:
    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        address, worker = await plane.address(SERVICE, replica), plane.worker
        plane.dataplane.publish(msgspec.structs.replace(SERVICE, timeout_seconds=1))
        await until(lambda: plane.worker != worker)
        replica.gate.clear()
        async with asyncio.timeout(PATIENCE):
            while (await get(address)).status != 504:
                await plane.dataplane.synchronize(KEY)
        replica.gate.set()

    play(lambda: Plane(path), story)


def test_a_backend_that_was_not_added_by_the_daemon_is_replaced(path: Path) -> None:
    async def story(plane: Plane) -> None:
        await plane.address(SERVICE, await WebReplica("a").start())
        # Before version 3.4 there is no such command.
        await plane.command(f"add backend {backend_name(OTHER)} from http-no-route")
        address = await plane.address(msgspec.structs.replace(SERVICE, key=OTHER), await WebReplica("b").start())
        async with asyncio.timeout(PATIENCE):
            while (await get(address)).body != "b":
                await asyncio.sleep(0.01)

    play(lambda: Plane(path), story)


def test_a_new_workload_is_served_before_all_others_are_compared(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = Master.ask

    async def noted(self: Master, line: str, seconds: float = ANSWER_SECONDS) -> str:
        asked.append(line)
        return await ask(self, line, seconds)

    monkeypatch.setattr(Master, "ask", noted)

    async def story(plane: Plane) -> None:
        new, replica = Key(Kind.WORKLOAD, "shop", "new"), await WebReplica("b").start()
        await plane.address(SERVICE, await WebReplica("a").start())
        asked.clear()
        plane.dataplane.update(new, (replica.endpoint,))
        plane.dataplane.publish(msgspec.structs.replace(SERVICE, key=new))
        await until(lambda: plane.dataplane.address(new))
        assert (await get(plane.dataplane.address(new))).body == "b"
        first = next(line for line in asked if line.startswith(("@1 add backend", "@1 show stat -1")))
        assert first.startswith("@1 add") is without_reload()

    play(lambda: Plane(path), story)


def test_a_refused_addition_becomes_a_reload(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Master.send

    async def without_profile(self: Master, commands: Iterable[str]) -> None:
        """HAProxy refuses a backend without a profile."""
        await send(self, (re.sub("^(add backend .*) from .*", r"\1", each) for each in commands))

    monkeypatch.setattr(Master, "send", without_profile)

    async def story(plane: Plane) -> None:
        await plane.address(SERVICE, await WebReplica("a").start())
        worker = plane.worker
        address = await plane.address(msgspec.structs.replace(SERVICE, key=OTHER), await WebReplica("b").start())
        assert (await get(address)).body == "b"
        assert plane.worker != worker

    play(lambda: Plane(path), story)
