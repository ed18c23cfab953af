"""The configuration of HAProxy as text: cases, and that HAProxy accepts what is rendered."""

from __future__ import annotations

import random
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
    HOLD,
    HOLDS,
    Backend,
    ProxyOptions,
    Server,
    backend_name,
    decode_key,
    decode_name,
    encode,
    read_percents,
    read_ports,
    render,
    server,
    structure,
)
from reconciler.engines.host.dataplane.haproxy.pages import PAGES, pages
from reconciler.engines.host.dataplane.haproxy.split import SPLITS
from reconciler.engines.host.dataplane.protocol import Service
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
    found = (
        server(Endpoint(name, address, {str(PORT): address}, 1), PORT, case.get("limit", 0))
        for name, address in case["replicas"].items()
    )
    weight, split = case.get("weight", 1), tuple(case.get("split", {}).items())
    servers = (msgspec.structs.replace(each, weight=weight) for each in found if each is not None)
    return Backend(service, port, tuple(servers), split=split)


def prepare(path: Path, backends: Sequence[Backend], *, lua: bool = True) -> None:
    """Write the configuration and its files."""
    (path / PAGES).mkdir(exist_ok=True)
    for name in (HOLDS, SPLITS):
        (path / name).touch()
    for status, text in pages().items():
        (path / PAGES / str(status)).write_text(text)
    (path / HOLD).write_bytes(files(haproxy).joinpath(HOLD).read_bytes())
    (path / CONFIG).write_text(render(msgspec.structs.replace(OPTIONS, lua=lua), backends))


@pytest.mark.parametrize("case", cases("dataplane/haproxy.yaml"))
def test_each_service_has_its_sections(case: dict[str, Any]) -> None:
    text = render(OPTIONS, [backend(case)])
    assert text[text.index("\nfrontend ") + 1 :] == case["text"]


def test_haproxy_accepts_all_of_them_without_a_warning(tmp_path: Path) -> None:
    program = tool("haproxy", "haproxy")
    found = [case.values[0] for case in cases("dataplane/haproxy.yaml")]
    named = {backend_name(each.service.key): each for each in map(backend, found)}
    backends = [msgspec.structs.replace(each, port=18_000 + number) for number, each in enumerate(named.values())]
    for lua in (True, False):
        prepare(tmp_path, backends, lua=lua)
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
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_text_is_the_same_in_any_order_and_its_digest_does_not_depend_on_replicas() -> None:
    services = [Service(Key(Kind.WORKLOAD, "shop", name), PORT) for name in ("a", "b", "c")]
    servers = (Server("x", "127.0.0.1:1"), Server("y", "127.0.0.1:2", 10))
    backends = [Backend(each, 18_000 + number, servers) for number, each in enumerate(services)]
    shuffled = [msgspec.structs.replace(each, servers=servers[::-1]) for each in backends]
    random.Random(1).shuffle(shuffled)
    assert render(OPTIONS, backends) == render(OPTIONS, shuffled)
    bare = [msgspec.structs.replace(each, servers=()) for each in backends]
    assert structure(OPTIONS, bare) == structure(OPTIONS, backends)
    assert structure(OPTIONS, backends[:2]) != structure(OPTIONS, backends)


@pytest.mark.parametrize("text", ["web", "a_b", "_self", "ü\n#", "", "A1-z"])
def test_names_can_be_read_back(text: str) -> None:
    assert decode_name(encode(text)) == text
    key = Key(Kind.WORKLOAD, text, f"{text}:{text}")
    assert decode_key(backend_name(key)) == key


def test_ports_can_be_read_back() -> None:
    found = [case.values[0] for case in cases("dataplane/haproxy.yaml")]
    backends = [backend(case, 18_000 + number) for number, case in enumerate(found)]
    ports = {each.service.key: each.port for each in backends}
    named = {each.service.key: each for each in backends}
    assert read_ports(render(OPTIONS, named.values())) == ports
    assert read_ports("nothing of it") == {}


def test_splits_can_be_read_back_and_percents_are_no_part_of_the_digest() -> None:
    key, other = (Key(Kind.WORKLOAD, "shop", name) for name in ("web", "api"))
    percents = {1: 90, 12: 10, 13: 0}
    parts = [Backend(Service(key, PORT), 18_000, split=tuple(percents.items())), Backend(Service(other, PORT), 18_001)]
    assert read_percents(render(OPTIONS, parts)) == {key: percents}
    moved = [msgspec.structs.replace(parts[0], split=((1, 10), (12, 90))), parts[1]]
    ended = [msgspec.structs.replace(parts[0], split=()), parts[1]]
    assert structure(OPTIONS, moved) == structure(OPTIONS, parts) != structure(OPTIONS, ended)
