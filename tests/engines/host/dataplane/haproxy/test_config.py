"""The configuration of HAProxy as text: cases, and that HAProxy accepts what is rendered."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.dataplane import haproxy
from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.haproxy.config import (
    CONFIG,
    EMPTY,
    HOLD,
    HOLDS,
    PORTS,
    Backend,
    ProxyOptions,
    Server,
    backend_name,
    decode_key,
    decode_name,
    encode_name,
    make_server,
)
from reconciler.engines.host.dataplane.haproxy.config_file import needs_of, next_load
from reconciler.engines.host.dataplane.haproxy.ingress import service_lines
from reconciler.engines.host.dataplane.haproxy.rendering.pages import PAGES, render_pages
from reconciler.engines.host.dataplane.haproxy.rendering.render import (
    FileLayout,
    Frontends,
    LoadedConfig,
    compute_structure_digest,
    read_digest,
    read_loaded,
    read_ports,
    read_shapes,
    render_config,
)
from reconciler.engines.host.dataplane.haproxy.split import SPLITS
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.model.key import Key, Kind
from tests.support.cases import cases
from tests.support.programs import tool

OPTIONS = ProxyOptions("aws-us-west-2")
PORT = 8080


def backend(case: dict[str, Any], port: int = 18_000) -> Backend:
    """The backend of a case."""
    fields = dict(case["service"])
    key = Key(Kind.WORKLOAD, fields.pop("gvc"), fields.pop("name"))
    service = msgspec.convert(fields | {"port": PORT, "key": key}, Service, strict=True)
    servers_or_none = (
        make_server(Endpoint(name, address, {str(PORT): address}, 1), PORT, case.get("limit", 0))
        for name, address in case["replicas"].items()
    )
    weight, split = case.get("weight", 1), tuple(case.get("split", {}).items())
    servers = (msgspec.structs.replace(each, weight=weight) for each in servers_or_none if each is not None)
    return Backend(service, port, tuple(servers), split=split)


def layout(backends: Sequence[Backend], options: ProxyOptions = OPTIONS) -> FileLayout:
    """All that stands before the backends, with two ports for workloads to come where these need no reload."""
    loaded = next_load(options, LoadedConfig(), needs_of(options, backends), lambda _count, _bound: [19_001, 19_000])
    services = [each.service for each in backends]
    seconds = max((each.timeout_seconds for each in services), default=0)
    return FileLayout(options, loaded, Frontends("", service_lines(services, RouteTable()), seconds))


def prepare(path: Path, backends: Sequence[Backend], options: ProxyOptions = OPTIONS) -> None:
    """Write the configuration and its files."""
    (path / PAGES).mkdir(exist_ok=True)
    for name in (HOLDS, EMPTY, PORTS, SPLITS):
        (path / name).touch()
    for name, text in render_pages().items():
        (path / PAGES / name).write_text(text)
    (path / HOLD).write_bytes(files(haproxy).joinpath(HOLD).read_bytes())
    (path / CONFIG).write_text(render_config(layout(backends, options), backends))


@pytest.mark.parametrize("case", cases("dataplane/haproxy.yaml"))
def test_each_service_has_its_sections(case: dict[str, Any]) -> None:
    found = [backend(case)]
    text = render_config(layout(found), found)
    # The digest of the options stands for each of them, and the pages are the same for all.
    text = re.sub(
        r"(http|tcp)-[0-9a-f]{12}", r"\1-0", text[re.search("^defaults (http|tcp)-[0-9a-f]{12}$", text, re.M).start() :]
    )
    assert "".join(line for line in text.splitlines(keepends=True) if "http-error" not in line) == case["text"]


def test_haproxy_accepts_all_of_them_without_a_warning(tmp_path: Path) -> None:
    program = tool("haproxy", "haproxy")
    found = [case.values[0] for case in cases("dataplane/haproxy.yaml")]
    named = {backend_name(each.service.key): each for each in map(backend, found)}
    backends = [msgspec.structs.replace(each, port=18_000 + number) for number, each in enumerate(named.values())]
    for lua, runtime in ((True, False), (True, True), (False, False)):
        prepare(tmp_path, backends, msgspec.structs.replace(OPTIONS, lua=lua, runtime=runtime))
        done = subprocess.run(
            [program, "-c", "-f", CONFIG], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, [line for line in done.stderr.splitlines() if "NOTICE" not in line]) == (0, [])


def test_haproxy_needs_no_memory_that_is_written_and_executed(tmp_path: Path) -> None:
    """The unit of the daemon forbids it (MemoryDenyWriteExecute)."""
    program = tool("haproxy", "haproxy")
    prepare(tmp_path, [])
    forbid = "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", forbid, program, "-c", "-f", CONFIG],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_text_is_the_same_in_any_order_and_its_digest_does_not_depend_on_replicas() -> None:
    services = [Service(Key(Kind.WORKLOAD, "shop", name), PORT) for name in ("a", "b", "c")]
    servers = (Server("x", "127.0.0.1:1"), Server("y", "127.0.0.1:2", 10))
    backends = [Backend(service, 18_000 + number, servers) for number, service in enumerate(services)]
    shuffled = [msgspec.structs.replace(backend, servers=servers[::-1]) for backend in backends]
    random.Random(1).shuffle(shuffled)
    assert render_config(layout(backends), backends) == render_config(layout(shuffled), shuffled)
    bare = [msgspec.structs.replace(backend, servers=()) for backend in backends]
    for runtime in (False, True):
        options = msgspec.structs.replace(OPTIONS, runtime=runtime)
        shared = layout(backends, options)
        assert compute_structure_digest(shared, bare) == compute_structure_digest(shared, backends)
        assert (compute_structure_digest(shared, backends[:2]) == compute_structure_digest(shared, backends)) is runtime
        other = msgspec.structs.replace(shared, loaded=msgspec.structs.replace(shared.loaded, count=7))
        assert compute_structure_digest(other, backends) != compute_structure_digest(shared, backends)


@pytest.mark.parametrize("text", ["web", "a_b", "_self", "ü\n#", "", "A1-z"])
def test_names_can_be_read_back(text: str) -> None:
    assert decode_name(encode_name(text)) == text
    key = Key(Kind.WORKLOAD, text, f"{text}:{text}")
    assert decode_key(backend_name(key)) == key


def test_what_a_process_was_loaded_with_can_be_read_back() -> None:
    found = [case.values[0] for case in cases("dataplane/haproxy.yaml")]
    named = {each.name: each for each in (backend(case, 18_000 + number) for number, case in enumerate(found))}
    for runtime in (False, True):
        options = msgspec.structs.replace(OPTIONS, runtime=runtime)
        shared = layout([*named.values()], options)
        text = render_config(shared, named.values())
        assert read_loaded(text) == shared.loaded
        assert read_ports(text) == {name: backend.port for name, backend in named.items()}
        assert read_shapes(text) == needs_of(options, named.values()).shapes
        assert read_digest(text) == compute_structure_digest(shared, named.values())
    nothing = "nothing of it"
    assert (read_loaded(nothing), read_ports(nothing), read_shapes(nothing), read_digest(nothing)) == (
        LoadedConfig(),
        {},
        {},
        "",
    )


def test_the_percents_of_a_split_are_no_part_of_the_digest() -> None:
    key, other = (Key(Kind.WORKLOAD, "shop", name) for name in ("web", "api"))
    parts = [
        Backend(Service(key, PORT), 18_000, split=((1, 90), (12, 10), (13, 0))),
        Backend(Service(other, PORT), 18_001),
    ]
    shared = layout(parts)
    moved = [msgspec.structs.replace(parts[0], split=((1, 10), (12, 90))), parts[1]]
    ended = [msgspec.structs.replace(parts[0], split=()), parts[1]]
    assert (
        compute_structure_digest(shared, moved)
        == compute_structure_digest(shared, parts)
        != compute_structure_digest(shared, ended)
    )
    # Where backends come and go at run time, their lines are compared instead.
    assert needs_of(OPTIONS, moved).shapes == needs_of(OPTIONS, parts).shapes != needs_of(OPTIONS, ended).shapes
