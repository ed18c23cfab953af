"""Ten projects of other tools: converted, committed with their secrets and applied, they run, and no plan is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.documents.writer import render_stream
from reconciler.model.image_names import full_name
from tests.engines.host.runtimes.podman.serving import in_thread
from tests.support import processes
from tests.support.cases import CASES
from tests.support.git import File
from tests.support.host_sandbox import host_sandbox
from tests.support.podman import PodmanService, manifest_of, podman_service, stand_in_image
from tests.support.registry import FakeRegistry
from tests.support.sandbox import DaemonSandbox, eventually

FILES = sorted((CASES / "projects").glob("*.yaml"))
NAMES = [file.stem for file in FILES]
SHORT = "compose-blog"
COUNTS = {"compose": 3, "kubernetes": 3, "kamal": 2, "quadlet": 2}
HERE = "//location/here"
SECRET = re.compile(r"platform://secret/([-a-z0-9]+)(?:\.([-._a-zA-Z0-9]+))?")
NEEDS_NAME = re.compile(r"must link to the secret ([-a-z0-9]+)")
STAND_IN = "localhost/reconciler-test-stand-in:1"
REGISTRIES = {"docker.io": "registry-1.docker.io"}
"""The registry of a name → its host, where it is another."""


@cache
def case_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CASES / "projects" / f"{name}.yaml").read_text())
    return found


class ConvertedProject:
    """The manifests that the commands make of the project ``name``, with what they ask for."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        for path, text in case_of(name)["files"].items():
            (folder / path).write_text(text)
        words = ["reconciler.cli", "convert", ".", "--gvc", name]
        if name.startswith("compose-"):
            words = ["reconciler.platform_cli", "stack", "manifest", "--gvc", name, "--location", "here"]
        done = processes.run(["-m", *words], cwd=folder)
        assert done.returncode == 0, done
        self.name = name
        self.remarks = done.stderr
        self.output = done.stdout
        self.resources: list[dict[str, Any]] = [*yaml.safe_load_all(done.stdout)]

    def of(self, kind: str) -> Iterator[dict[str, Any]]:
        """The manifests of a kind."""
        return (each for each in self.resources if each["kind"] == kind)

    def files(self) -> dict[str, File]:
        """What is committed: the manifests, the secrets that they refer to, and their GVC."""
        added = [*self._missing_secrets()]
        if not [*self.of("gvc")]:
            links = [f"//secret/{name}" for name in self._pull_secrets()]
            placement: dict[str, Any] = {"staticPlacement": {"locationLinks": [HERE]}}
            added += [
                {"kind": "gvc", "name": self.name, "spec": placement | ({"pullSecretLinks": links} if links else {})}
            ]
        return {f"{self.name}/converted.yaml": self.output, f"{self.name}/added.yaml": render_stream(added)}

    def workload_keys(self) -> list[str]:
        """The keys of all workloads."""
        return [f"workload/{self.name}/{each['name']}" for each in self.of("workload")]

    def images(self) -> set[str]:
        """The images of all containers."""
        return {part["image"] for each in self.of("workload") for part in each["spec"]["containers"]}

    def _pull_secrets(self) -> list[str]:
        return sorted(set(NEEDS_NAME.findall(self.remarks)))

    def _missing_secrets(self) -> Iterator[dict[str, Any]]:
        present = {each["name"] for each in self.of("secret")}
        keys = defaultdict[str, set[str]](set)
        for name, key in SECRET.findall(json.dumps(self.resources)):
            if name not in present:
                assert re.search(rf"secret {name} must exist", self.remarks), name
                keys[name].add(key)
        for name, names in sorted(keys.items()):
            content: Any = dict.fromkeys(sorted(names), "made-up")
            if "" in names:
                content = {"payload": "made-up"}
            yield {"kind": "secret", "name": name, "type": "opaque" if "" in names else "dictionary", "data": content}
        for name in self._pull_secrets():
            login = {"auths": {"registry.example.com": {"username": "ci", "password": "made-up"}}}
            yield {"kind": "secret", "name": name, "type": "docker", "data": json.dumps(login)}


def test_there_are_ten_projects_of_four_tools_each_with_a_sentence() -> None:
    assert {tool: sum(name.startswith(f"{tool}-") for name in NAMES) for tool in COUNTS} == COUNTS
    sentences = [case_of(name)["description"] for name in NAMES]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(NAMES)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ConvertedProject]:
    folder = tmp_path_factory.mktemp("projects")
    return {name: ConvertedProject(name, folder / name) for name in NAMES}


def test_converted_projects_are_applied_once(tmp_path: Path, converted: Mapping[str, ConvertedProject]) -> None:
    projects = [*converted.values()]
    sandbox = DaemonSandbox(tmp_path, committed(projects), locations={"here": {"engine": "recorded"}})
    with sandbox.daemon():
        check(sandbox, projects)


@contextlib.contextmanager
def registry_server() -> Iterator[FakeRegistry]:
    """A server that answers as any registry."""
    registry = FakeRegistry()

    async def serve(ready: threading.Event, end: asyncio.Event) -> None:
        async with registry:
            ready.set()
            await end.wait()

    with in_thread(serve):
        yield registry


def committed(projects: Sequence[ConvertedProject]) -> dict[str, File]:
    return {path: text for each in projects for path, text in each.files().items()}


def is_ready(sandbox: DaemonSandbox, project: ConvertedProject, key: str) -> bool:
    """Whether the status file of a workload has it as Ready."""
    found = yaml.safe_load(sandbox.status(f"{project.name}/workload/{key.rpartition('/')[2]}.yaml")) or {}
    return any(each["type"] == "Ready" and each["status"] for each in found.get("conditions", ()))


def check(sandbox: DaemonSandbox, projects: Sequence[ConvertedProject]) -> None:
    """All workloads become Ready, and a plan has nothing left to do."""
    waiting = [(each, key) for each in projects for key in each.workload_keys()]
    for each, key in waiting:
        eventually(partial(is_ready, sandbox, each, key), f"{key} is Ready", patience=150.0)
    assert sandbox.condition("Ready").startswith("true")
    done = sandbox.run("plan", "--format", "json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["steps"] == []


def push(registry: FakeRegistry, service: PodmanService, images: Collection[str]) -> None:
    """Let each of ``images`` be in its registry and on this host: the stand-in, under its name and tag."""
    archive = stand_in_image(STAND_IN)
    service.load(archive)
    for each in images:
        name, tag = full_name(each), each.rpartition(":")[2]
        registry.push(name.partition("/")[2], tag, manifest_of(archive))
        service.request("POST", f"images/{STAND_IN}/tag?repo={name}&tag={tag}")


def check_in_containers(path: Path, projects: Sequence[ConvertedProject]) -> None:
    """The same with Podman, whose images stand in for those of the projects."""
    images = {image for each in projects for image in each.images()}
    with podman_service() as service, registry_server() as registry:
        push(registry, service, images)
        settings: dict[str, Any] = {
            "locations": {"here": {"engine": "host", "runtime": "podman"}},
            "podman": {"socket": str(service.socket)},
            "images": {"insecure": sorted({REGISTRIES.get(host, host) for host in map(host_of, images)})},
        }
        with (
            host_sandbox(path, committed(projects), **settings) as sandbox,
            sandbox.daemon(http_proxy=f"http://{registry.host}"),
        ):
            check(sandbox, projects)


def host_of(image: str) -> str:
    return full_name(image).partition("/")[0]


def test_a_converted_project_runs_in_containers(tmp_path: Path, converted: Mapping[str, ConvertedProject]) -> None:
    check_in_containers(tmp_path, [converted[SHORT]])


@pytest.mark.slow
def test_all_converted_projects_run_in_containers(tmp_path: Path, converted: Mapping[str, ConvertedProject]) -> None:
    check_in_containers(tmp_path, [*converted.values()])
