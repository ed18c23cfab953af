"""Compose projects: services, what they extend, include, mount and wait for, and their variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from reconciler.convert.budget import Budget
from reconciler.convert.compose.convert import convert_project as convert_compose
from reconciler.convert.notes import make_findings
from reconciler.documents.writer import render_stream
from tests.convert.compose.kit import project
from tests.cost.growth import Shape
from tests.cost.inputs.repeated import lines

Files = dict[str, str]

TIGHT = (3_000, 300_000)
"""A budget that shapes reach whose text repeats what it names: up to it, they grow as they like."""


def root_of(count: int) -> int:
    """The side of a square with ``count`` places."""
    return int(count**0.5)


class ProjectSource(NamedTuple):
    """The files of a project by path, its variables and profiles, and how much it may become."""

    files: Files
    environ: Mapping[str, str]
    profiles: tuple[str, ...]
    budget: Budget


def read_compose(source: ProjectSource) -> None:
    """As `platform stack manifest` reads a project, up to the text of its manifests and findings."""
    files, environ, profiles, budget = source
    paths = [name for name in files if name.endswith(".yaml") and "/" not in name]
    found = project(files, *paths, environ=environ, profiles=profiles, budget=budget)
    converted = convert_compose(found)
    make_findings(converted.remarks, found.contents)
    render_stream(draft.body for draft in converted.drafts)


def compose(
    *texts: Callable[[int], str],
    environ: Callable[[int], Mapping[str, str]] = lambda _: {},
    profiles: Callable[[int], Iterable[str]] = lambda _: (),
    count: int = 400,
    tight: bool = False,
    **beside: Callable[[int], str],
) -> Shape:
    """A project of ``texts``, each a file, with ``beside`` in a folder x, by their names."""

    def make(size: int) -> ProjectSource:
        files = {f"{number}.yaml": text(size) for number, text in enumerate(texts)}
        files |= {f"x/{name.replace('_', '.')}": text(size) for name, text in beside.items()}
        return ProjectSource(files, environ(size), tuple(profiles(size)), Budget(*TIGHT) if tight else Budget())

    return Shape(make, read_compose, count, repeats=tight)


def service(text: str) -> Callable[[int], str]:
    """One service with ``text``, in which a line with N is repeated."""

    def make(count: int) -> str:
        own = "".join(f"{lines(count, line) if 'N' in line else line}\n" for line in text.splitlines())
        return f"services:\n  a:\n    image: a\n{own}"

    return make


def services(form: str, before: str = "", after: str = "") -> Callable[[int], str]:
    """Services of one form; ``before`` and ``after`` are more of the file, with a line with N repeated."""

    def around(text: str, count: int) -> str:
        return "".join(f"{lines(count, line) if 'N' in line else line}\n" for line in text.splitlines())

    return lambda count: (
        around(before, count) + "services:\n" + lines(count, f"  sN: {form}") + "\n" + around(after, count)
    )


def earlier(count: int) -> str:
    """Services of which each depends on all before it: as many dependencies as ``count``."""
    side = root_of(2 * count)
    texts = [f"  s{n}: {{image: a, depends_on: [{', '.join(f's{m}' for m in range(n))}]}}" for n in range(side)]
    return "services:\n" + "\n".join(texts)


def included(number: int) -> Callable[[int], str]:
    """A file with one service."""
    return lambda _: f"services: {{i{number}: {{image: a}}}}"


COMPOSE: dict[str, Shape] = {
    "services": compose(services("{image: a, command: [run], environment: {A: b}}")),
    "services that extend one": compose(services("{extends: base}", after="  base: {image: a, environment: {A: b}}")),
    "services that extend one with as many variables": compose(
        services("{extends: base}", after="  base:\n    image: a\n    environment:\n      VN: b"), count=600, tight=True
    ),
    "services that extend one with as many ports": compose(
        services("{extends: base}", after="  base:\n    image: a\n    expose:\n      - '1N'"), count=600, tight=True
    ),
    "a chain of services that extend the next": compose(services("{image: a, extends: sM}")),
    "services that extend one of a file": compose(
        services("{extends: {file: x/far.yaml, service: sN}}"), far_yaml=services("{image: a}")
    ),
    "services that extend themselves": compose(services("{image: a, extends: sN}")),
    "services that extend one that is missing": compose(services("{image: a, extends: none}")),
    "dependencies of one service": compose(service("    depends_on:\n      - sN")),
    "dependencies on one service": compose(services("{image: a, depends_on: [b]}", after="  b: {image: b}")),
    "dependencies on all before": compose(earlier, count=2_000),
    "dependencies one after another": compose(services("{image: a, depends_on: [sM]}")),
    "dependencies on jobs": compose(
        services("{image: a, depends_on: {j: {condition: service_completed_successfully}}}", after="  j: {image: b}")
    ),
    "variables": compose(service("    environment:\n      VN: b")),
    "variables as a list": compose(service("    environment:\n      - VN=b")),
    "variables without a value": compose(
        service("    environment:\n      - VN"), environ=lambda count: {f"V{n}": "x" for n in range(count)}
    ),
    "variables with addresses": compose(services("{image: a, environment: {U: 'http://sM:8080/'}}")),
    "one variable with many addresses": compose(
        lambda count: (
            "services:\n"
            + lines(count, "  sN: {image: a}")
            + "\n  z: {image: z, command: '"
            + lines(count, "http://sN:8080", " ")
            + "'}"
        )
    ),
    "labels": compose(service("    labels:\n      lN: b")),
    "words of a command": compose(service("    command:\n      - wN")),
    "a command as a text": compose(
        lambda count: f"services: {{a: {{image: a, command: '{lines(count, 'wN', ' ')}'}}}}"
    ),
    "quotes in a command": compose(
        lambda count: "services: {a: {image: a, command: " + '"' + "'a b' " * count + '"}}', count=1_000
    ),
    "ports": compose(service("    ports:\n      - 1N:1N")),
    "ports of services": compose(services("{image: a, ports: ['8080:80', '9090:90/udp'], expose: [70]}")),
    "ranges of ports": compose(service("    ports:\n      - 1000-1099:1000-1099\n      - 'N-9N'"), count=50),
    "exposed ports": compose(service("    expose:\n      - '1N'")),
    "exposed ranges": compose(service("    expose:\n      - '1N-1N9'"), count=50),
    "mounts of a volume each": compose(
        lambda count: service("    volumes:\n      - vN:/dN")(count) + "volumes:\n" + lines(count, "  vN: {}")
    ),
    "mounts of one volume": compose(services("{image: a, volumes: ['v:/d']}", after="volumes: {v: {}}")),
    "mounts of files": compose(
        service("    volumes:\n      - ./x/fN:/d/fN"), **{f"f{n}": lambda _: "text" for n in range(800)}
    ),
    "mounts of files that are missing": compose(services("{image: a, volumes: ['./gone:/d/gone']}")),
    "mounts of a volume each, by services": compose(
        services("{image: a, volumes: ['vN:/d']}", before="volumes:\n  vN: {}")
    ),
    "volumes that nobody mounts": compose(services("{image: a}", before="volumes:\n  vN: {labels: {a: b}}")),
    "directories in memory": compose(service("    tmpfs:\n      - /tN")),
    "secrets": compose(services("{image: a, secrets: [cN]}", before="secrets:\n  cN: {content: text}")),
    "secrets of one service": compose(
        lambda count: service("    secrets:\n      - cN")(count) + "secrets:\n" + lines(count, "  cN: {content: text}")
    ),
    "configs of one file": compose(
        services("{image: a, configs: [cN]}", before="configs:\n  cN: {file: ./x/c}"), c=lambda _: "text"
    ),
    "secrets that nobody uses": compose(services("{image: a}", before="secrets:\n  cN: {content: text}")),
    "secrets that are missing": compose(services("{image: a, secrets: [none]}")),
    "env files": compose(service("    env_file:\n      - ./x/e"), e=lambda count: lines(count, "VN=a")),
    "services with one env file": compose(services("{image: a, env_file: ./x/e}"), e=lambda _: "A=b"),
    "services with one env file of as many variables": compose(
        services("{image: a, env_file: ./x/e}"), e=lambda count: lines(count, "VN=b"), count=600, tight=True
    ),
    "health checks": compose(services("{image: a, healthcheck: {test: [CMD, x], interval: 1m}}")),
    "words of a health check": compose(service("    healthcheck:\n      test:\n        - wN")),
    "hooks": compose(service("    post_start:\n      - {command: wN}")),
    "profiles of one service": compose(
        service("    profiles:\n      - pN"), profiles=lambda count: [f"q{n}" for n in range(count)]
    ),
    "services with a profile each": compose(
        services("{image: a, profiles: [pN]}"), profiles=lambda count: [f"p{n}" for n in range(count)]
    ),
    "extensions": compose(services("{image: a}", before="x-N: {a: b}")),
    "unknown fields of the file": compose(services("{image: a}", before="wordN: {a: b}")),
    "unknown fields of a service": compose(service("    wordN: b")),
    "unknown fields of services": compose(services("{image: a, comand: b, .dotN: c}")),
    "networks": compose(services("{image: a, networks: [nN]}", before="networks:\n  nN: {}")),
    "anchors and aliases": compose(services("*b", before="x-b: &b {image: a, command: [run]}"), count=200),
    "anchors and merges": compose(services("{<<: *b, labels: {a: b}}", before="x-b: &b {image: a}"), count=200),
    "merges of all before": compose(
        lambda count: (
            "x-b0: &b0 {image: a}\n"
            + "\n".join(f"x-b{n}: &b{n} {{<<: *b{n - 1}, k{n}: b}}" for n in range(1, count))
            + f"\nservices: {{a: *b{count - 1}}}"
        ),
        count=100,
    ),
    "documents": compose(lambda count: lines(count, "services: {sN: {image: a}}", "\n---\n")),
    "documents for one service": compose(
        lambda count: lines(count, "services: {s: {image: a, environment: {VN: a}, expose: ['1N']}}", "\n---\n")
    ),
    "two files": compose(services("{image: a, environment: {A: b}}"), services("{image: b, environment: {B: b}}")),
    "lists of two files": compose(service("    expose:\n      - '1N'"), service("    expose:\n      - '1N'")),
    "tags that reset": compose(
        services("{image: a, tty: true}"),
        services("{tty: !reset null}"),
        count=40,
    ),
    "words that yaml reads in two ways": compose(services("{image: a, restart: no}"), count=40),
    "includes of one file": compose(
        lambda count: f"include: [{', '.join(['x/far.yaml'] * count)}]\nservices: {{a: {{image: a}}}}",
        far_yaml=services("{image: a}"),
        count=800,
        tight=True,
    ),
    "includes of files": compose(
        lambda count: f"include:\n{lines(count, '  - x/iN.yaml')}\nservices: {{a: {{image: a}}}}",
        **{f"i{number}_yaml": included(number) for number in range(100)},
        count=40,
    ),
    "includes with an env file": compose(
        lambda count: (
            f"include: [{', '.join(['{path: x/far.yaml, env_file: x/e}'] * count)}]\nservices: {{a: {{image: a}}}}"
        ),
        far_yaml=lambda _: "services: {b: {image: a}}",
        e=lambda count: lines(count, "VN=b"),
        count=800,
    ),
    "unset variables": compose(services("{image: '$VN'}")),
    "variables in a text": compose(
        lambda count: f"services: {{a: {{image: a, command: ['{'$A' * count}']}}}}",
        environ=lambda _: {"A": "text"},
        count=2_000,
    ),
    "long variables in a text": compose(
        lambda count: f"services: {{a: {{image: a, command: ['{'$A' * count}']}}}}",
        environ=lambda count: {"A": "x" * count},
        tight=True,
        count=16_000,
    ),
    "long variables in services": compose(
        services("{image: a, command: ['$A']}"), environ=lambda count: {"A": "x" * 50 * count}, count=800, tight=True
    ),
    "defaults in one another": compose(
        lambda count: f"services: {{a: {{image: a, command: ['{'${A:-${B:-${C:-word}}}' * count}']}}}}", count=1_000
    ),
    "unused defaults in one another": compose(
        lambda count: "services: {a: {image: a, command: ['" + "${A:-" * 15 + "${B:-x}" * count + "}" * 15 + "']}}",
        environ=lambda _: {"A": "a"},
        count=1_000,
    ),
    "a long name of a variable": compose(
        lambda count: f"services: {{a: {{image: a, command: ['${'A' * count}']}}}}", count=20_000
    ),
    "a long duration": compose(
        lambda count: f"services: {{a: {{image: a, stop_grace_period: '{'1s' * count}'}}}}", count=10_000
    ),
    "a long size": compose(lambda count: f"services: {{a: {{image: a, mem_limit: '{'1' * count}'}}}}", count=20_000),
    "a long name of an image": compose(lambda count: f"services: {{a: {{image: '{'a/' * count}'}}}}", count=20_000),
    "a long path": compose(lambda count: f"services: {{a: {{image: a, tmpfs: '/{'a/' * count}'}}}}", count=20_000),
    "a long address": compose(
        lambda count: f"services: {{a: {{image: a, command: '{'a-' * count}:80'}}}}", count=20_000
    ),
    "names that become one": compose(
        lambda count: (
            "services:\n" + "\n".join(f"  a{'_' * (n % 60 + 1)}{'.' * (n // 60)}: {{image: a}}" for n in range(count))
        ),
        count=300,
    ),
    "volumes whose names become one": compose(
        lambda count: (
            "volumes:\n"
            + "\n".join(f"  a{'_' * (n % 60 + 1)}{'.' * (n // 60)}: {{}}" for n in range(count))
            + "\nservices:\n"
            + "\n".join(
                f"  s{n}: {{image: a, volumes: ['a{'_' * (n % 60 + 1)}{'.' * (n // 60)}:/d']}}" for n in range(count)
            )
        ),
        count=300,
    ),
    "hosts that are mapped": compose(service("    extra_hosts:\n      - hN:1.2.3.4")),
    "arguments of a build": compose(service("    build:\n      context: .\n      args:\n        aN: b")),
}
