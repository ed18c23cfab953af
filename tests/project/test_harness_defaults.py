"""Tests run with the default settings of the product: what a harness changes has a reason, and nothing else changes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from reconciler.settings import load_settings, types
from tests.bench.host_sandbox import BenchSandbox
from tests.project.tree import ROOT, walk
from tests.support.host_sandbox import HostSandbox
from tests.support.sandbox import DaemonSandbox

REASONS = {
    "host.terminationScale": "time: replicas have 90 seconds to end",
    "host.volumes": "mounts: those of a test that is killed would stay",
    "host.diskReserve": "room: the disk of a test has less than the reserve",
    "host.hold.requests": "time: a queue is full after few requests",
    "host.hold.seconds": "time: a request is held for a moment",
    "locations": "place: the locations of the test",
    "locations.dataplane": "time: the start of a HAProxy costs more than most tests; those that are about it have one",
    "locations.ingress": "place: the ports of the test",
    "locations.runtime": "place: the registry of an image; tests of images name Podman's service",
    "domains.resolver": "place: no test asks a name server of others",
    "images.allowed": "subject: the rule that the test is about",
    "images.insecure": "place: the registry of the test has no certificate",
    "secrets.directory": "place: the secrets of the test",
    "sources.gvc": "subject: the rule that the test is about",
    "sources.branch": "place: the branch of the test",
    "sources.interval": "time: a poll replaces a wake-up that got lost",
    "sources.status.interval": "time: the status is written at once",
    "state": "place: the directory of the test",
    "log.format": "form: tests read the lines of the log",
    "log.level": "form: tests wait for lines that are for a search for a fault",
    "notifications": "subject: what is sent, which nobody is by default",
    "prune.percent": "subject: the benchmark deletes all that it has made, in one commit",
}
"""Setting that a harness changes → why. Whatever else a user gets by default is what tests use."""

SITES: dict[str, Callable[[Path], DaemonSandbox]] = {
    "site": DaemonSandbox,
    "host": lambda path: HostSandbox(path, {}),
    "bench": lambda path: BenchSandbox(path, {}),
}


def changed(settings: msgspec.Struct, name: str = "") -> Iterator[str]:
    """The settings in ``settings`` that are not the default ones; what a user must set has no default."""
    for field in msgspec.structs.fields(settings):
        value, default = getattr(settings, field.name), field.default
        path = f"{name}.{field.encode_name}".lstrip(".")
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        inner = [*value.values()] if isinstance(value, dict) else [*value] if isinstance(value, tuple) else [value]
        structs = [each for each in inner if isinstance(each, msgspec.Struct)]
        for each in structs:
            yield from changed(each, path)
        if not (isinstance(value, msgspec.Struct) or default is msgspec.NODEFAULT or value == default):
            yield path


STRUCTS = {
    name: value
    for name, value in vars(types).items()
    if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == types.__name__
}
PARTS = {
    "Settings": "",
    "HostSettings": "host.",
    "DomainSettings": "domains.",
    "HoldSettings": "host.hold.",
    "LocationSettings": "locations.",
    "ImageSettings": "images.",
    "SecretSettings": "secrets.",
    "SourceSettings": "sources.",
}
"""The settings that harnesses make without a file, and where they are in one."""


def made(call: ast.Call) -> Iterator[str]:
    """The settings with a default that ``call`` makes otherwise."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    fields = msgspec.structs.fields(STRUCTS[name])
    words = {*(each.name for each in fields[: len(call.args)]), *(word.arg for word in call.keywords)}
    for field in fields:
        if field.name in words and not field.required and not isinstance(field.default, msgspec.Struct):
            yield f"{PARTS[name]}{field.encode_name}"


def harnesses() -> Iterator[str]:
    """The settings that the harnesses make without a file."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not path.name.startswith("test_"):
            for node in walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in PARTS:
                    yield from made(node)


def test_harnesses_change_only_the_defaults_that_have_a_reason(tmp_path: Path) -> None:
    names = {*harnesses()}
    for name, make in SITES.items():
        names |= {*changed(load_settings(make(tmp_path / name).settings_file))}
    assert names - REASONS.keys() == set(), "use the default, or give a reason"
    assert REASONS.keys() - names == set(), "no harness changes them any more"
