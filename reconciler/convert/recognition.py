"""What a file is, by its name and its first keys, and which command takes it."""

from __future__ import annotations

import posixpath
import re
import shlex
from enum import StrEnum
from typing import NamedTuple

from reconciler.convert.quadlet.units import is_unit
from reconciler.documents.reader import read
from reconciler.model.key import KINDS
from reconciler.printable import printable

_KEY = re.compile(rb"^([A-Za-z][-A-Za-z0-9_]{0,40})[ \t]*:(?:[ \t\r\n]|\Z)", re.MULTILINE)
_KIND = re.compile(rb"^kind[ \t]*:[ \t]*[\"']?([A-Za-z]{1,60})", re.MULTILINE)
_TEMPLATE = re.compile(rb"\{\{-?[ \t]*[^}\n]{0,200}\}\}")
_COMPOSE = re.compile(r"(?:docker-)?compose(?:\.[-.\w]{1,60})?\.ya?ml")
_KAMAL = frozenset({"servers", "image", "accessories", "proxy", "registry", "builder"})
_STDIN = "stdin"
"""The path of standard input among the files of a command."""
_MOST_BYTES = 1 << 20
"""The largest file that is read for its keys where they are not at the beginning of lines."""


class Form(StrEnum):
    """The sorts of files that people come with; the value stands behind `is`."""

    MANIFEST = "a manifest"
    KUBERNETES = "Kubernetes YAML"
    KUSTOMIZATION = "a Kustomization"
    CHART = "a part of a Helm chart"
    COMPOSE = "a compose file"
    KAMAL = "a deploy.yml of Kamal"
    QUADLET = "a quadlet of Podman"
    PROCFILE = "a Procfile"
    APP = "an app.json"
    FLY = "a fly.toml"
    UNKNOWN = ""


_NONE = "no command converts it: write a workload for each process, see docs/platform/workload.md"
_TAKEN: dict[Form, str] = {
    Form.MANIFEST: "it needs no conversion: reconciler validate {path}",
    Form.KUBERNETES: "convert it with: {convert} {path}",
    Form.KUSTOMIZATION: "convert what it makes: kustomize build {folder} | {convert} -",
    Form.CHART: "convert what it makes: helm template {chart} | {convert} -",
    Form.COMPOSE: "convert it with: platform stack manifest --file {path}",
    Form.KAMAL: "convert it with: {convert} {path}",
    Form.QUADLET: "convert it with: {convert} {path}",
    Form.PROCFILE: _NONE,
    Form.APP: _NONE,
    Form.FLY: _NONE,
}
"""Form → which command takes the file, or that none does."""
_BY_NAME = {
    "Chart.yaml": Form.CHART,
    "app.json": Form.APP,
    "fly.toml": Form.FLY,
    "kustomization.yaml": Form.KUSTOMIZATION,
    "kustomization.yml": Form.KUSTOMIZATION,
}


class _Keys(NamedTuple):
    """The keys at the root of a file, and its kinds."""

    names: frozenset[str]
    kinds: frozenset[str]


def form_of(path: str, raw: bytes) -> Form:
    """What the file at ``path`` is; no content makes it raise."""
    name = posixpath.basename(path)
    if is_unit(path):
        return Form.QUADLET
    if name.partition(".")[0] == "Procfile":
        return Form.PROCFILE
    if name in _BY_NAME:
        return _BY_NAME[name]
    keys = _keys(raw)
    if _TEMPLATE.search(raw) and ("templates" in path.split("/") or {"apiVersion", "kind"} <= keys.names):
        return Form.CHART
    if keys.kinds:
        return _of_kinds(keys)
    if "service" in keys.names and not _KAMAL.isdisjoint(keys.names):
        return Form.KAMAL
    if "services" in keys.names or _COMPOSE.fullmatch(name):
        return Form.COMPOSE
    return Form.UNKNOWN


def _of_kinds(keys: _Keys) -> Form:
    if "apiVersion" not in keys.names:
        return Form.MANIFEST
    if not keys.kinds.isdisjoint(KINDS):
        return Form.UNKNOWN  # of both sorts: each document is checked by itself
    return Form.KUSTOMIZATION if keys.kinds == {"Kustomization"} else Form.KUBERNETES


def foreign(path: str, form: Form, program: str = "reconciler") -> str:
    """A sentence that says what the file at ``path`` is, and which command of ``program`` takes it."""
    shown, folder = "-" if path == _STDIN else shlex.quote(path), posixpath.dirname(path) or "."
    chart = folder.partition("/templates")[0] if "templates" in folder.split("/") else folder
    convert = "reconciler convert" if program == "reconciler" else "platform convert --file"
    words = _TAKEN[form].format(path=shown, folder=shlex.quote(folder), chart=shlex.quote(chart), convert=convert)
    return printable(f"{'standard input' if path == _STDIN else path} is {form}; {words}")


def _keys(raw: bytes) -> _Keys:
    if raw.lstrip()[:1] in (b"{", b"[") and len(raw) <= _MOST_BYTES:
        values = [each.value for each in read(raw).documents if isinstance(each.value, dict)]
        names = frozenset(str(name) for value in values for name in value)
        return _Keys(names, frozenset(str(value["kind"]) for value in values if isinstance(value.get("kind"), str)))
    names = frozenset(each.decode() for each in _KEY.findall(raw))
    return _Keys(names, frozenset(each.decode() for each in _KIND.findall(raw)))
