"""The example runs unchanged with each runtime, and differs in nothing but what is meant to differ."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engines.host.runtimes.podman.libpod import Libpod
from tests.engines.host.runtimes.podman.serving import in_thread, served
from tests.support.host_sandbox import HostSandbox, fetch, host_sandbox
from tests.support.podman import manifest_of, podman_service, python_image
from tests.support.registry import FakeRegistry, manifest
from tests.support.sandbox import ROOT, STATUS, eventually

wait = partial(eventually, patience=120.0)
PLACES = ("aws-us-west-2", "gcp-us-east1")
NAMES = ("web", "api", "db")
HUB = "registry-1.docker.io"
IMAGE = "docker.io/library/python:3.11-slim"
EXAMPLE = {str(path.relative_to(ROOT / "examples/repo")): path.read_text() for path in ROOT.glob("examples/repo/*/*")}

MEANT = {
    r"deployments workload/(\S+) status\.versions\.0\.containers\.\w+\.image": "Podman runs the digest of the tag",
    r"deployments workload/(\S+) workload\.resolvedImages\..*": "processes use no images",
    r"deployments workload/(\S+) status\.conditions\.0\.\w+": "each runtime lacks something else, or nothing",
    r"status reconciler.yaml daemon\.(id|state)": "each is a daemon of its own",
    r"status \S+/workload/\S+ conditions\.\d\.\w+": "the same sentences",
}
"""The places where the two differ, and why."""
PASSING = re.compile(r"\b(?:api|web)-[a-z0-9]{5}\b|\b20\d\d-\d\d-\d\dT[\d:.]+Z|\b[0-9a-f]{40}\b")
"""Text that varies from run to run: names of replicas, times and commits."""
VARYING = re.compile(r"\.ports\.\d+$|\.address$|\.currentBytesUsed$")
"""Fields that vary: ports, and what programs have written by the moment of the look."""


@contextlib.contextmanager
def docker_hub(image: bytes) -> Iterator[str]:
    """The address of a proxy that answers as Docker Hub: the tag of the example means the manifest ``image``."""
    hub = FakeRegistry()
    hub.push("library/python", "3.11-slim", image)

    async def serve(ready: threading.Event, end: asyncio.Event) -> None:
        async with hub:
            ready.set()
            await end.wait()

    with in_thread(serve):
        yield f"http://{hub.host}"


@contextlib.contextmanager
def example(path: Path, runtime: str, **settings: Any) -> Iterator[HostSandbox]:
    """A sandbox with the manifests of the example, at two locations with ``runtime``."""
    places = {place: {"engine": "host", "runtime": runtime} for place in PLACES}
    with host_sandbox(path, EXAMPLE, locations=places, **settings) as sandbox:
        yield sandbox


def is_healthy(sandbox: HostSandbox) -> bool:
    """Whether all services are, also on the status branch."""
    found = all(sandbox.healthy(f"workload/shop/{name}@{place}") for name in NAMES for place in PLACES)
    return found and all("\nhealth: Healthy\n" in sandbox.status(f"shop/workload/{name}.yaml") for name in NAMES)


def facts(sandbox: HostSandbox) -> dict[str, object]:
    """Each field of the deployments, events and status files, by its path."""
    with sandbox.records() as records:
        deployments = {f"{each.key}@{each.location}": json.loads(each.state) for each in records.applied.items()}
        events = [
            (f"{each.key}@{each.location}", each.type, each.reason, each.message) for each in records.events.list()
        ]
    names = sandbox.repo.git("ls-tree", "-r", "--name-only", STATUS).split()
    status = {name: yaml.safe_load(sandbox.status(name)) for name in names if name.endswith(".yaml")}
    parts = {"deployments": deployments, "events": dict(enumerate(sorted(events))), "status": status}
    return {
        f"{kind} {name} {path}": value
        for kind, documents in parts.items()
        for name, document in documents.items()
        for path, value in _fields(document)
    }


def _fields(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    below = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    if not below:
        yield path, "*" if VARYING.search(path) else PASSING.sub("*", str(value))
    for name, each in below:
        yield from _fields(each, f"{path}.{name}".lstrip("."))


def differences(one: dict[str, object], other: dict[str, object]) -> set[str]:
    """The paths of fields that are not equal."""
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}


def check_same(process: HostSandbox, podman: HostSandbox) -> None:
    """Nothing differs but what is meant to, and all of that does."""
    found = differences(facts(process), facts(podman))
    assert [path for path in sorted(found) if not any(re.fullmatch(each, path) for each in MEANT)] == []
    assert [each for each in MEANT if not any(re.fullmatch(each, path) for path in found)] == []


@contextlib.contextmanager
def both_runtimes(path: Path, proxy: str, socket: Path) -> Iterator[tuple[HostSandbox, HostSandbox]]:
    """The example with processes and with containers of the Podman at ``socket``, healthy and the same."""
    settings = {"podman": {"socket": str(socket)}, "images": {"insecure": [HUB]}}
    with (
        example(path / "process", "process") as process,
        example(path / "podman", "podman", **settings) as podman,
        process.daemon(),
        podman.daemon(http_proxy=proxy),
    ):
        for sandbox in (process, podman):
            wait(partial(is_healthy, sandbox), f"the example is healthy in {sandbox.path.name}")
        check_same(process, podman)
        yield process, podman


def test_the_example_is_the_same_with_either_runtime(tmp_path: Path) -> None:
    socket = tmp_path / "podman.sock"
    with (
        docker_hub(manifest("python")) as proxy,
        served(Libpod(answers=True), socket),
        both_runtimes(tmp_path, proxy, socket) as (process, _),
    ):
        for place in PLACES:
            _order(process, place)


@pytest.mark.slow
def test_the_example_runs_in_containers(tmp_path: Path) -> None:
    image = python_image(IMAGE)
    with podman_service() as service:
        service.load(image)
        with (
            docker_hub(manifest_of(image)) as proxy,
            both_runtimes(tmp_path, proxy, service.socket) as (_, podman),
        ):
            for place in PLACES:
                _order(podman, place)


def _order(sandbox: HostSandbox, location: str) -> None:
    """Check that an order at the API is on the page of its own location only."""
    (web,), apis = sandbox.ready("web", location), sandbox.ready("api", location)
    assert len(apis) == 2
    order = urllib.request.Request(f"http://{apis[0]}/orders", data=f"a hat for {location}".encode())
    assert urllib.request.urlopen(order, timeout=60).status == 201
    page = fetch(web)
    assert f"Shop in {location}" in page
    assert f"a hat for {location}" in page
    assert page.count("a hat for") == 1
    assert "EUR" in page
