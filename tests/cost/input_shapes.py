"""Inputs that others write, by size: compose projects, Kubernetes documents, exports, queries, settings and the like."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from reconciler.convert.compose.convert import convert as convert_compose
from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file
from reconciler.convert.export.convert import normalise
from reconciler.convert.kubernetes.convert import convert as convert_kubernetes
from reconciler.convert.notes import findings
from reconciler.convert.reader import read_all, read_kubernetes
from reconciler.documents.reader import read
from reconciler.documents.writer import stream
from reconciler.errors import SourceError, UsageError
from reconciler.logql.query import QueryError, parse
from reconciler.manifests.decoder import decode
from reconciler.manifests.normalize import ManifestContext
from reconciler.settings.loader import load_settings
from reconciler.sops.encrypt import EncryptionRules, decrypt_file, encrypt
from reconciler.sops.keys import Keyring
from reconciler.source.file_filter import FileFilter
from tests.convert.compose.kit import project
from tests.cost.growth import Shape
from tests.support.sops import MOMENT, fresh

Files = dict[str, str]

MAIN = "compose.yaml"
SEALED = "ENC[AES256_GCM,data:AAAA,iv:AAAA,tag:AAAA,type:str]"


def lines(count: int, form: str, join: str = "\n") -> str:
    """``form`` for each number below ``count``, which it names N; M is the number before."""
    return join.join(form.replace("N", str(number)).replace("M", str(max(number - 1, 0))) for number in range(count))


def root_of(count: int) -> int:
    """The side of a square with ``count`` places."""
    return int(count**0.5)


# Compose


def read_compose(given: tuple[Files, Mapping[str, str], tuple[str, ...]]) -> None:
    """As `platform stack manifest` reads a project, up to the text of its manifests and findings."""
    files, environ, profiles = given
    paths = [name for name in files if name.endswith(".yaml") and "/" not in name]
    found = project(files, *paths, environ=environ, profiles=profiles)
    converted = convert_compose(found)
    findings(converted.remarks, found.contents)
    stream(draft.body for draft in converted.drafts)


def compose(
    *texts: Callable[[int], str], environ: Callable[[int], Mapping[str, str]] = lambda _: {},
    profiles: Callable[[int], Iterable[str]] = lambda _: (), count: int = 400, **beside: Callable[[int], str],
) -> Shape:  # fmt: skip
    """A project of ``texts``, each a file, with ``beside`` in a folder x, by their names."""

    def make(size: int) -> tuple[Files, Mapping[str, str], tuple[str, ...]]:
        files = {f"{number}.yaml": text(size) for number, text in enumerate(texts)}
        files |= {f"x/{name.replace('_', '.')}": text(size) for name, text in beside.items()}
        return files, environ(size), tuple(profiles(size))

    return Shape(make, read_compose, count)


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


COMPOSE: dict[str, Shape] = {
    "services": compose(services("{image: a, command: [run], environment: {A: b}}")),
    "services that extend one": compose(services("{extends: base}", after="  base: {image: a, environment: {A: b}}")),
    "services that extend one with as many variables": compose(
        services("{extends: base}", after="  base:\n    image: a\n    environment:\n      VN: b"), count=300
    ),
    "services that extend one with as many ports": compose(
        services("{extends: base}", after="  base:\n    image: a\n    expose:\n      - '1N'"), count=300
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
        services("{image: a, env_file: ./x/e}"), e=lambda count: lines(count, "VN=b"), count=300
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
        count=200,
    ),
    "includes of files": compose(
        lambda count: f"include:\n{lines(count, '  - x/iN.yaml')}\nservices: {{a: {{image: a}}}}",
        **{f"i{n}_yaml": (lambda n: lambda _: f"services: {{i{n}: {{image: a}}}}")(n) for n in range(100)},
        count=40,
    ),
    "includes with an env file": compose(
        lambda count: (
            f"include: [{', '.join(['{path: x/far.yaml, env_file: x/e}'] * count)}]\nservices: {{a: {{image: a}}}}"
        ),
        far_yaml=lambda _: "services: {b: {image: a}}",
        e=lambda count: lines(count, "VN=b"),
        count=200,
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
        count=4_000,
    ),
    "long variables in services": compose(
        services("{image: a, command: ['$A']}"), environ=lambda count: {"A": "x" * 50 * count}, count=400
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


def read_env(text: str) -> None:
    """As a file of variables beside a project is read."""
    try:
        parse_env_file(text.encode(), {"OUTER": "value"})
    except EnvFileError:
        return


ENV_FILES: dict[str, Shape] = {
    "lines": Shape(lambda count: lines(count, "VN=value"), read_env, 1_000),
    "lines that use the first": Shape(lambda count: lines(count, "VN=$V0"), read_env, 1_000),
    "lines that use the one before": Shape(lambda count: lines(count, "VN=$VM"), read_env, 1_000),
    "a line that doubles": Shape(lambda count: "A=x\n" + "A=$A$A\n" * count, read_env, 1_000),
    "a line that grows": Shape(lambda count: "A=x\n" + "A=$A-value\n" * count, read_env, 1_000),
    "lines with quotes": Shape(lambda count: lines(count, "VN=\"a\\nb\" # c"), read_env, 1_000),
    "a value of many lines": Shape(lambda count: 'A="' + "line\n" * count + '"', read_env, 5_000),
    "quotes that do not end": Shape(lambda count: lines(count, "VN=\"a"), read_env, 1_000),
    "single quotes that do not end": Shape(lambda count: lines(count, "VN='a"), read_env, 1_000),
    "empty lines": Shape(lambda count: "\n" * count, read_env, 20_000),
    "blanks": Shape(lambda count: "A=" + " " * count + "b" + " " * count, read_env, 5_000),
    "blanks before signs": Shape(lambda count: "A=" + " \t#" * count, read_env, 5_000),
    "a long name": Shape(lambda count: "A" * count, read_env, 20_000),
    "names alone": Shape(lambda count: lines(count, "VN"), read_env, 1_000),
    "a dollar sign at the end of each line": Shape(lambda count: lines(count, "VN=a$"), read_env, 1_000),
}  # fmt: skip


# Kubernetes


def head(kind: str, name: str, api: str = "v1", more: str = "") -> str:
    """The beginning of a resource."""
    return f"apiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop{more}}}\n"


def kubernetes(*parts: Callable[[int], Any], count: int = 200) -> Shape:
    """The documents that ``parts`` make, in one file."""

    def make(size: int) -> bytes:
        documents = [document for part in parts for document in part(size)]
        return yaml.dump_all(documents, Dumper=yaml.CSafeDumper, default_flow_style=None).encode()

    def convert(raw: bytes) -> None:
        contents = {"all.yaml": raw}
        sources, _ = read_kubernetes(contents)
        converted = convert_kubernetes(sources)
        findings(converted.remarks, contents)
        stream(draft.body for draft in converted.drafts)

    return Shape(make, convert, count)


def resource(kind: str, name: str, api: str = "v1", metadata: Mapping[str, Any] = {}, **fields: Any) -> dict[str, Any]:  # noqa: B006
    """One resource in the namespace shop."""
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "shop", **metadata}, **fields}


def deployment(
    name: str = "web", labels: Mapping[str, str] = {"app": "web"}, pod: Mapping[str, Any] = {}, kind: str = "Deployment",  # noqa: B006
    spec: Mapping[str, Any] = {}, **container: Any,  # noqa: B006
) -> dict[str, Any]:  # fmt: skip
    """A Deployment, or the like, with one container."""
    containers = [{"name": "main", "image": "nginx", **container}]
    template = {"metadata": {"labels": {**labels}}, "spec": {"containers": containers, **pod}}
    return resource(kind, name, "apps/v1", spec={"selector": {"matchLabels": {**labels}}, "template": template, **spec})


def kube_service(name: str = "web", labels: Mapping[str, str] = {"app": "web"}, ports: Any = None) -> dict[str, Any]:  # noqa: B006
    """A Service."""
    return resource(
        "Service", name, spec={"selector": {**labels}, "ports": ports or [{"port": 80, "targetPort": 8080}]}
    )


def ingress(name: str, rules: Any, **spec: Any) -> dict[str, Any]:
    """An Ingress."""
    return resource("Ingress", name, "networking.k8s.io/v1", spec={"rules": rules, **spec})


def route(path: str, name: str = "web", port: int = 80) -> dict[str, Any]:
    """A path of an Ingress."""
    return {"path": path, "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": port}}}}


def rule(host: str, *routes: Any) -> dict[str, Any]:
    """A rule of an Ingress."""
    return {"host": host, "http": {"paths": [*routes]}}


Numbers = Callable[[int], Any]


def many(make: Callable[[int], Any]) -> Numbers:
    """A document for each number."""
    return lambda count: [make(number) for number in range(count)]


def one(make: Callable[[range], Any]) -> Numbers:
    """One document, which has all numbers."""
    return lambda count: [make(range(count))]


KUBERNETES: dict[str, Shape] = {
    "workloads": kubernetes(many(lambda n: deployment(f"w{n}"))),
    "workloads with a service each": kubernetes(
        many(lambda n: deployment(f"w{n}", {"app": f"w{n}"}, ports=[{"containerPort": 8080}])),
        many(lambda n: kube_service(f"w{n}", {"app": f"w{n}"})),
    ),
    "services of one workload": kubernetes(one(lambda _: deployment()), many(lambda n: kube_service(f"s{n}"))),
    "services of one workload, with two labels": kubernetes(
        one(lambda _: deployment(labels={"a": "b", "app": "web"})),
        many(lambda n: kube_service(f"s{n}", {"a": "b", "app": "web"})),
    ),
    "workloads of one service": kubernetes(
        many(lambda n: deployment(f"w{n}", ports=[{"containerPort": 8080}])), one(lambda _: kube_service())
    ),
    "workloads of one service with as many paths": kubernetes(
        many(lambda n: deployment(f"w{n}", ports=[{"containerPort": 8080}])),
        one(lambda _: kube_service()),
        one(lambda ns: ingress("i", [rule("a.example.com", *(route(f"/p{n}") for n in ns))])),
    ),
    "paths to a service each": kubernetes(
        many(lambda n: deployment(f"w{n}", {"app": f"w{n}"}, ports=[{"containerPort": 8080}])),
        many(lambda n: kube_service(f"w{n}", {"app": f"w{n}"})),
        one(lambda ns: ingress("i", [rule("a.example.com", *(route(f"/p{n}", f"w{n}") for n in ns))])),
    ),
    "paths to a service of many ports": kubernetes(
        one(lambda ns: deployment(ports=[{"containerPort": 2000 + n, "name": f"p{n}"} for n in ns])),
        one(lambda ns: kube_service(ports=[{"port": 2000 + n, "name": f"p{n}"} for n in ns])),
        one(lambda ns: ingress("i", [rule("a.example.com", *(route(f"/p{n}", port=2000 + n) for n in ns))])),
    ),
    "hosts": kubernetes(
        one(lambda _: deployment(ports=[{"containerPort": 8080}])), one(lambda _: kube_service()),
        one(lambda ns: ingress("i", [rule(f"a{n}.example.com", route("/")) for n in ns])),
    ),
    "hosts with a certificate each": kubernetes(
        one(lambda _: deployment(ports=[{"containerPort": 8080}])), one(lambda _: kube_service()),
        many(lambda n: resource("Secret", f"t{n}", data={"tls.crt": "QQ==", "tls.key": "QQ=="})),
        one(lambda ns: ingress("i", [rule(f"a{n}.example.com", route("/")) for n in ns],
                               tls=[{"hosts": [f"a{n}.example.com"], "secretName": f"t{n}"} for n in ns])),
    ),
    "certificates for all hosts": kubernetes(
        one(lambda _: deployment(ports=[{"containerPort": 8080}])), one(lambda _: kube_service()),
        many(lambda n: resource("Secret", f"t{n}", data={"tls.crt": "QQ==", "tls.key": "QQ=="})),
        one(lambda ns: ingress("i", [rule(f"a{n}.example.com", route("/")) for n in ns],
                               tls=[{"secretName": f"t{n}"} for n in ns])),
    ),
    "ingresses": kubernetes(
        one(lambda _: deployment(ports=[{"containerPort": 8080}])), one(lambda _: kube_service()),
        many(lambda n: ingress(f"i{n}", [rule("a.example.com", route(f"/{n}"))])),
    ),
    "rules without a host": kubernetes(one(lambda ns: ingress("i", [{"http": {"paths": [route("/")]}} for _ in ns]))),
    "containers": kubernetes(one(lambda ns: deployment(pod={"containers": [{"name": f"c{n}", "image": "a"} for n in ns]}))),
    "containers of one name": kubernetes(one(lambda ns: deployment(pod={"containers": [{"name": "c", "image": "a"} for _ in ns]}))),
    "containers with a port each": kubernetes(
        one(lambda ns: deployment(pod={"containers": [
            {"name": f"c{n}", "image": "a", "ports": [{"containerPort": 2000 + n}]} for n in ns]})),
        one(lambda ns: kube_service(ports=[{"port": 2000 + n, "name": f"p{n}"} for n in ns])),
    ),
    "init containers": kubernetes(one(lambda ns: deployment(pod={"initContainers": [{"name": f"c{n}"} for n in ns]}))),
    "ports": kubernetes(one(lambda ns: deployment(ports=[{"containerPort": 2000 + n} for n in ns]))),
    "ports with names that a service serves": kubernetes(
        one(lambda ns: deployment(ports=[{"containerPort": 2000 + n, "name": f"p{n}"} for n in ns])),
        one(lambda ns: kube_service(ports=[{"port": 2000 + n, "targetPort": f"p{n}"} for n in ns])),
    ),
    "ports of a service": kubernetes(
        one(lambda _: deployment()), one(lambda ns: kube_service(ports=[{"port": 2000 + n, "name": f"p{n}"} for n in ns]))
    ),
    "variables": kubernetes(one(lambda ns: deployment(env=[{"name": f"V{n}", "value": "a"} for n in ns]))),
    "variables of a secret": kubernetes(
        one(lambda ns: resource("Secret", "s", stringData={f"k{n}": "a" for n in ns})),
        one(lambda ns: deployment(env=[
            {"name": f"V{n}", "valueFrom": {"secretKeyRef": {"name": "s", "key": f"k{n}"}}} for n in ns])),
    ),
    "variables of secrets that are missing": kubernetes(
        one(lambda ns: deployment(env=[
            {"name": f"V{n}", "valueFrom": {"secretKeyRef": {"name": f"s{n}", "key": "k"}}} for n in ns]))
    ),
    "all variables of a secret": kubernetes(
        one(lambda ns: resource("ConfigMap", "s", data={f"k{n}": "a" for n in ns})),
        one(lambda _: deployment(envFrom=[{"configMapRef": {"name": "s"}}])),
    ),
    "all variables of a secret, again and again": kubernetes(
        one(lambda ns: resource("ConfigMap", "s", data={f"k{n}": "a" for n in ns})),
        one(lambda ns: deployment(envFrom=[{"prefix": f"P{n}", "configMapRef": {"name": "s"}} for n in ns])),
    ),
    "workloads with all variables of a secret": kubernetes(
        one(lambda ns: resource("ConfigMap", "s", data={f"k{n}": "a" for n in ns})),
        many(lambda n: deployment(f"w{n}", envFrom=[{"configMapRef": {"name": "s"}}])),
    ),
    "mounts of a volume each": kubernetes(
        one(lambda ns: deployment(pod={"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in ns]},
                                  volumeMounts=[{"name": f"v{n}", "mountPath": f"/d{n}"} for n in ns])), count=300
    ),
    "mounts of one volume": kubernetes(
        one(lambda ns: deployment(pod={"volumes": [{"name": "v", "emptyDir": {}}]},
                                  volumeMounts=[{"name": "v", "mountPath": f"/d{n}"} for n in ns])), count=300
    ),
    "mounts inside one another": kubernetes(
        one(lambda ns: deployment(pod={"volumes": [{"name": "v", "emptyDir": {}}]},
                                  volumeMounts=[{"name": "v", "mountPath": f"/d/{n}/e"} for n in (*ns, *ns)])), count=300
    ),
    "files of a secret": kubernetes(
        one(lambda ns: resource("Secret", "s", stringData={f"k{n}": "a" for n in ns})),
        one(lambda ns: deployment(
            pod={"volumes": [{"name": "v", "secret": {"secretName": "s", "items": [{"key": f"k{n}", "path": f"p{n}"} for n in ns]}}]},
            volumeMounts=[{"name": "v", "mountPath": "/d"}])),
    ),
    "files of a secret, one mount each": kubernetes(
        one(lambda ns: resource("Secret", "s", stringData={f"k{n}": "a" for n in ns})),
        one(lambda ns: deployment(
            pod={"volumes": [{"name": "v", "secret": {"secretName": "s", "items": [{"key": f"k{n}", "path": f"p{n}"} for n in ns]}}]},
            volumeMounts=[{"name": "v", "mountPath": f"/d{n}", "subPath": f"p{n}"} for n in ns])),
    ),
    "sources of a volume": kubernetes(
        many(lambda n: resource("ConfigMap", f"s{n}", data={"k": "a"})),
        one(lambda ns: deployment(
            pod={"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": f"s{n}"}} for n in ns]}}]},
            volumeMounts=[{"name": "v", "mountPath": "/d"}])),
    ),
    "claims": kubernetes(
        many(lambda n: resource("PersistentVolumeClaim", f"c{n}", spec={"resources": {"requests": {"storage": "20Gi"}}})),
        many(lambda n: deployment(f"w{n}", pod={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{n}"}}]},
                                  volumeMounts=[{"name": "v", "mountPath": "/d"}])),
    ),
    "workloads with one claim": kubernetes(
        one(lambda _: resource("PersistentVolumeClaim", "c", spec={"resources": {"requests": {"storage": "20Gi"}}})),
        many(lambda n: deployment(f"w{n}", pod={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
                                  volumeMounts=[{"name": "v", "mountPath": "/d"}])),
    ),
    "templates of claims": kubernetes(
        one(lambda ns: deployment(kind="StatefulSet", spec={"volumeClaimTemplates": [
            {"metadata": {"name": f"t{n}"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}} for n in ns]},
            volumeMounts=[{"name": f"t{n}", "mountPath": f"/d{n}"} for n in ns])), count=300
    ),
    "names that become one": kubernetes(many(lambda n: deployment(f"a{'_' * (n % 60 + 1)}{'.' * (n // 60)}")), count=300),
    "labels": kubernetes(one(lambda ns: deployment(labels={f"l{n}": "a" for n in ns}))),
    "labels that services select": kubernetes(
        one(lambda ns: deployment(labels={f"l{n}": "a" for n in ns})),
        many(lambda n: kube_service(f"s{n}", {f"l{n}": "a"})),
    ),
    "labels of all": kubernetes(many(lambda n: resource("ConfigMap", f"c{n}", metadata={"labels": {f"l{n}": "a"}}))),
    "labels of one, for all": kubernetes(
        one(lambda ns: deployment(labels={f"l{n}": "a" for n in ns})),
        many(lambda n: resource("ConfigMap", f"c{n}", metadata={"labels": {"x": "a"}})),
    ),
    "annotations": kubernetes(
        one(lambda ns: resource("ConfigMap", "c", metadata={"annotations": {f"a{n}": "a" for n in ns}}, data={}))
    ),
    "owners": kubernetes(one(lambda ns: resource("ConfigMap", "c", metadata={"ownerReferences": [
        {"kind": "Job", "name": f"o{n}", "controller": True} for n in ns]}, data={}))),
    "keys of a secret": kubernetes(one(lambda ns: resource("Secret", "s", data={f"k{n}": "QQ==" for n in ns}))),
    "texts with addresses": kubernetes(
        many(lambda n: deployment(f"w{n}", {"app": f"w{n}"}, env=[{"name": "U", "value": f"http://w{n - 1}:80"}])),
        many(lambda n: kube_service(f"w{n}", {"app": f"w{n}"})),
    ),
    "one text with addresses": kubernetes(
        one(lambda _: deployment()), one(lambda _: kube_service()),
        one(lambda ns: resource("ConfigMap", "c", data={"k": " ".join(f"http://web:80/{n}" for n in ns)})),
    ),
    "autoscalers": kubernetes(
        many(lambda n: deployment(f"w{n}")),
        many(lambda n: resource("HorizontalPodAutoscaler", f"w{n}", "autoscaling/v2", spec={
            "scaleTargetRef": {"kind": "Deployment", "name": f"w{n}"}, "maxReplicas": 3})),
    ),
    "metrics of an autoscaler": kubernetes(
        one(lambda _: deployment()),
        one(lambda ns: resource("HorizontalPodAutoscaler", "web", "autoscaling/v2", spec={
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": f"m{n}"}}} for n in ns]})),
    ),
    "pull secrets": kubernetes(one(lambda ns: deployment(pod={"imagePullSecrets": [{"name": f"s{n}"} for n in ns]}))),
    "jobs": kubernetes(many(lambda n: resource("CronJob", f"j{n}", "batch/v1", spec={
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}}}))),
    "items of a list": kubernetes(one(lambda ns: {"apiVersion": "v1", "kind": "List", "items": [
        resource("ConfigMap", f"c{n}", data={"k": "a"}) for n in ns]})),
    "duplicates": kubernetes(many(lambda _: resource("ConfigMap", "c", data={"k": "a"}))),
    "kinds without a meaning": kubernetes(many(lambda n: resource("Role", f"r{n}", "rbac.authorization.k8s.io/v1"))),
    "unknown fields": kubernetes(one(lambda ns: deployment(pod={f"word{n}": "a" for n in ns}))),
    "unknown fields in a list": kubernetes(one(lambda ns: deployment(env=[{"name": f"V{n}", "word": n} for n in ns]))),
    "words of a command": kubernetes(one(lambda ns: deployment(command=[f"w{n}" for n in ns]))),
    "headers of a probe": kubernetes(one(lambda ns: deployment(readinessProbe={"httpGet": {
        "port": 80, "httpHeaders": [{"name": f"h{n}", "value": "a"} for n in ns]}}))),
    "namespaces": kubernetes(many(lambda n: deployment(f"w{n}") | {"metadata": {"name": f"w{n}", "namespace": f"n{n}"}})),
    "documents of nothing": kubernetes(many(lambda n: {"a": n})),
}  # fmt: skip


# Exports of the platform


def exported(make: Callable[[range], Any], count: int = 400) -> Shape:
    """The resources that ``make`` has for the numbers."""

    def read_export(raw: bytes) -> None:
        contents = {"all.yaml": raw}
        sources, _ = read_all(contents, frozenset({"tags"}))
        imported = normalise(sources, "acme")
        findings(imported.remarks, contents)
        stream(draft.body for draft in imported.drafts)

    return Shape(lambda size: yaml.dump(make(range(size)), Dumper=yaml.CSafeDumper).encode(), read_export, count)


def workload(**container: Any) -> dict[str, Any]:
    """An exported workload."""
    return {
        "kind": "workload",
        "name": "web",
        "gvc": "shop",
        "spec": {"containers": [{"name": "a", "image": "b", **container}]},
    }


EXPORTS: dict[str, Shape] = {
    "resources": exported(lambda ns: [{"kind": "secret", "name": f"s{n}", "type": "opaque", "data": {"payload": "a"}} for n in ns]),
    "items": exported(lambda ns: {"kind": "list", "items": [{"kind": "gvc", "name": f"g{n}"} for n in ns]}),
    "duplicates": exported(lambda ns: [{"kind": "gvc", "name": "g", "description": str(n)} for n in ns]),
    "members of one GVC": exported(lambda ns: [{"kind": "gvc", "name": "g"}, *({"kind": "identity", "name": f"i{n}"} for n in ns)]),
    "members of no GVC": exported(lambda ns: [{"kind": "gvc", "name": f"g{n % 2}"} if n < 2 else {"kind": "identity", "name": f"i{n}"} for n in ns]),
    "tags": exported(lambda ns: {"kind": "gvc", "name": "g", "tags": {f"t{n}": "a" for n in ns}}),
    "built-in tags": exported(lambda ns: {"kind": "gvc", "name": "g", "tags": {f"platform/t{n}": "a" for n in ns}}),
    "variables": exported(lambda ns: workload(env=[{"name": f"V{n}", "value": "a"} for n in ns])),
    "variables that are wrong": exported(lambda ns: workload(env=[{"name": f"V{n}", "value": 1} for n in ns])),
    "containers that are wrong": exported(lambda ns: {"kind": "workload", "name": "w", "gvc": "shop", "spec": {
        "containers": [{"name": f"c{n}", "image": 1, "cpu": []} for n in ns]}}),
    "unknown fields": exported(lambda ns: workload(**{f"word{n}": "a" for n in ns})),
    "unknown fields of variables": exported(lambda ns: workload(env=[{"name": f"V{n}", "word": "a"} for n in ns])),
    "links": exported(lambda ns: {"kind": "policy", "name": "p", "targetKind": "secret", "targetLinks": [f"/org/acme/secret/s{n}" for n in ns]}),
    "links to itself": exported(lambda ns: {"kind": "gvc", "name": "g", "links": [{"rel": "x", "href": f"/{n}"} for n in ns]}),
    "keys of a secret": exported(lambda ns: {"kind": "secret", "name": "s", "type": "dictionary", "data": {f"k{n}": "a" for n in ns}}),
    "keys of a secret that are wrong": exported(lambda ns: {"kind": "secret", "name": "s", "type": "dictionary", "data": {f"k{n}": {} for n in ns}}),
    "things that are no manifests": exported(lambda ns: [*ns]),
}  # fmt: skip


# Encrypted documents


@cache
def identity() -> tuple[str, str]:
    """An identity of age, and its recipient."""
    return fresh()


def _sealed(text: str) -> bytes:
    """``text``, encrypted as `reconciler secret encrypt` does it."""
    return encrypt(text.encode(), [identity()[1]], EncryptionRules(), MOMENT)


def _decode(raw: bytes) -> None:
    decode(raw, ManifestContext("acme", secret_key=b"k" * 32, secrets="encrypted-only"))


def _decode_with_key(raw: bytes) -> None:
    ring = Keyring((identity()[0],), required=True)
    decode(raw, ManifestContext("acme", secret_key=b"k" * 32, keyring=ring, secrets="encrypted-only"))


def _decrypt(raw: bytes) -> None:
    decrypt_file(raw, Keyring((identity()[0],), required=True))


HEAD = "kind: secret\nname: s\ntype: dictionary\ndata:\n"
METADATA = "\nsops: {lastmodified: '2026-01-02T03:04:05Z', mac: ''}\n"

ENCRYPTED: dict[str, Shape] = {
    "locked values": Shape(lambda count: f"{HEAD}{lines(count, f'  kN: {SEALED!r}')}{METADATA}".encode(), _decode),
    "plain values": Shape(lambda count: f"{HEAD}{lines(count, '  kN: text')}".encode(), _decode),
    "locked and plain values": Shape(
        lambda count: f"{HEAD}{lines(count, f'  kN: {SEALED!r}')}\n{lines(count, '  pN: text')}{METADATA}".encode(), _decode
    ),
    "locked documents": Shape(
        lambda count: "---\n".join(
            f"{HEAD}  k: {SEALED!r}{METADATA}".replace("name: s", f"name: s{n}") for n in range(count)
        ).encode(), _decode, 100,
    ),
    "recipients": Shape(
        lambda count: f"{HEAD}  k: {SEALED!r}\nsops:\n  lastmodified: '2026-01-02T03:04:05Z'\n  mac: ''\n  age:\n"
        f"{lines(count, '    - {recipient: age1N, enc: text}')}\n".encode(), _decode,
    ),
    "values in one another": Shape(
        lambda count: f"kind: gvc\nname: g\nx:\n{lines(count, f'  - [{SEALED!r}]')}{METADATA}".encode(), _decode
    ),
    "values that a key opens": Shape(lambda count: _sealed(f"{HEAD}{lines(count, '  kN: text')}\n"), _decode_with_key, 200),
    "documents that a key opens": Shape(
        lambda count: _sealed("---\n".join(f"{HEAD}  k: text\n".replace("name: s", f"name: s{n}") for n in range(count))),
        _decode_with_key, 50,
    ),
    "values that are shown": Shape(lambda count: _sealed(f"{HEAD}{lines(count, '  kN: text')}\n"), _decrypt, 200),
    "comments that are shown": Shape(
        lambda count: _sealed(f"{HEAD}{lines(count, '  # comment N')}\n  k: text\n"), _decrypt, 200
    ),
    "values that are encrypted": Shape(lambda count: f"{HEAD}{lines(count, '  kN: text')}\n", lambda text: _sealed(text), 200),
}  # fmt: skip


# The rest


def _query(text: str) -> None:
    try:
        parse(text)
    except QueryError:
        return


def _ignore(raw: bytes) -> None:
    try:
        chosen = FileFilter(ignored=raw)
    except SourceError:
        return
    for number in range(20):
        chosen.matches("/".join(["folder"] * 20) + f"/{number}.yaml")


def _paths(paths: list[str]) -> None:
    chosen = FileFilter(ignored=b"**/a*/**/b*/**/c.yaml\nfolder*/\n")
    for path in paths:
        chosen.matches(path)


QUERIES: dict[str, Shape] = {
    "labels": Shape(lambda count: "{" + lines(count, 'gvc="gN"', ",") + "}", _query, 100),
    "filters": Shape(lambda count: '{gvc="a"}' + lines(count, '|= "wN"', " "), _query, 100),
    "a long text": Shape(lambda count: f'{{gvc="{"a" * count}"}}', _query, 2_000),
    "an expression": Shape(lambda count: f'{{gvc=~"{"a|" * count}b"}}', _query, 400),
    "groups": Shape(lambda count: f'{{gvc=~"{"(a)" * count}"}}', _query, 400),
    "groups in one another": Shape(lambda count: f'{{gvc=~"{"(" * count}a{")" * count}"}}', _query, 40),
    "escapes": Shape(lambda count: '{gvc="' + "\\n" * count + '"}', _query, 1_000),
    "blanks": Shape(lambda count: '{gvc="a"}' + " " * count, _query, 2_000),
    "a long label": Shape(lambda count: "{" + "a" * count + '="b"}', _query, 2_000),
}
IGNORED: dict[str, Shape] = {
    "patterns": Shape(lambda count: lines(count, "d*N/**/x?.yaml").encode(), _ignore, 100),
    "comments": Shape(lambda count: lines(count, "# comment N").encode(), _ignore, 2_000),
    "names of a pattern": Shape(lambda count: ("**/d*/" * count).encode(), _ignore, 200),
    "stars of a pattern": Shape(lambda count: ("a*" * count).encode(), _ignore, 400),
    "a long name": Shape(lambda count: b"a" * count, _ignore, 20_000),
    "classes": Shape(lambda count: b"[a-" * count, _ignore, 2_000),
    "paths": Shape(lambda count: [f"shop/folder/{n}.yaml" for n in range(count)], _paths, 1_000),
    "a deep path": Shape(lambda count: ["a/" * count + "b.yaml"], _paths, 1_000),
}


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="growth-"))


def read_settings(text: str) -> None:
    """As the daemon loads its settings."""
    path = _folder() / "settings.yaml"
    path.write_text(text)
    try:
        load_settings(path)
    except UsageError as error:
        str(error)


DOCUMENTS: dict[str, Shape] = {
    "scalars": Shape(lambda count: lines(count, "kN: text").encode(), read, 1_000),
    "items": Shape(lambda count: lines(count, "- text N").encode(), read, 1_000),
    "duplicate keys": Shape(lambda count: lines(count, "k: text N").encode(), read, 1_000),
    "ambiguous words": Shape(lambda count: lines(count, "kN: no").encode(), read, 1_000),
    "unknown tags": Shape(lambda count: lines(count, "kN: !x text").encode(), read, 1_000),
    "anchors": Shape(lambda count: lines(count, "kN: &aN [text]").encode(), read, 1_000),
    "aliases": Shape(lambda count: b"a: &a [text]\n" + lines(count, "kN: *a").encode(), read, 400),
    "merges": Shape(lambda count: b"a: &a {x: text}\n" + lines(count, "kN: {<<: *a, y: z}").encode(), read, 400),
    "one merge of many": Shape(
        lambda count: (
            lines(count, "aN: &aN {xN: text}").encode() + b"\nk: {<<: [" + lines(count, "*aN", ", ").encode() + b"]}"
        ),
        read,
        400,
    ),
    "merges of as many keys": Shape(
        lambda count: (
            b"a: &a {" + lines(count, "xN: text", ", ").encode() + b"}\n" + lines(count, "kN: {<<: *a}").encode()
        ),
        read,
        100,
    ),
    "aliases of aliases": Shape(
        lambda count: (
            b"a0: &a0 [x]\n" + b"\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]".encode() for n in range(1, count))
        ),
        read,
        400,
    ),
    "documents": Shape(lambda count: lines(count, "k: text N", "\n---\n").encode(), read, 500),
    "lines of a text": Shape(lambda count: b"k: |\n" + lines(count, "  text N").encode(), read, 2_000),
    "comments": Shape(lambda count: lines(count, "# text N").encode() + b"\nk: v", read, 2_000),
    "brackets": Shape(lambda count: b"[" * count + b"]" * count, read, 2_000),
    "a long text": Shape(lambda count: b'k: "' + b"\\n" * count + b'"', read, 20_000),
    "a long number": Shape(lambda count: b"k: " + b"1" * count, read, 20_000),
    "a long key": Shape(lambda count: b"? " + b"k" * count + b"\n: v", read, 20_000),
    "blanks": Shape(lambda count: b"k:" + b" " * count + b"v", read, 20_000),
    "empty lines": Shape(lambda count: b"\n" * count + b"k: v", read, 20_000),
    "JSON": Shape(lambda count: b"{" + lines(count, '"kN": {"a": [1, "b"]}', ",").encode() + b"}", read, 500),
    "JSON with escapes": Shape(
        lambda count: b"{" + lines(count, r'"kN": "\ud83d\ude00"', ",").encode() + b"}", read, 500
    ),
}
