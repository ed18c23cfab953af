"""Writes `types.json` from the Go sources of the API: `python -m tests.kubernetes.fake.record_types API META`.

API is the folder of the module ``k8s.io/api``, META that of ``k8s.io/apimachinery``, of the version that
`tests/kubernetes/cluster/go.mod` has: ``go list -m -f '{{.Dir}}' k8s.io/api``. Only what the kinds below need is
recorded.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

KINDS = {
    "core/v1": "ConfigMap Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod ResourceQuota "
    "Secret Service ServiceAccount",
    "apps/v1": "DaemonSet Deployment ReplicaSet StatefulSet",
    "autoscaling/v1": "Scale",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "batch/v1": "CronJob Job",
    "events/v1": "Event",
    "networking/v1": "Ingress IngressClass NetworkPolicy",
    "policy/v1": "PodDisruptionBudget",
    "rbac/v1": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "storage/v1": "StorageClass",
    "coordination/v1": "Lease",
}
GROUPS = {"events": "events.k8s.io", "networking": "networking.k8s.io", "rbac": "rbac.authorization.k8s.io"}
GROUPS |= {"storage": "storage.k8s.io", "coordination": "coordination.k8s.io"}
SPECIAL = {
    "resource.Quantity": "Quantity",
    "intstr.IntOrString": "IntOrString",
    "metav1.Time": "Time",
    "metav1.MicroTime": "Time",
    "metav1.Duration": "Duration",
    "runtime.RawExtension": "any",
    "metav1.FieldsV1": "any",
    "FieldsV1": "any",
    "Time": "Time",
    "MicroTime": "Time",
    "[]byte": "bytes",
}
BASIC = {"string": "string", "bool": "bool", "float64": "float", "float32": "float"}
BASIC |= dict.fromkeys(("int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), "int")
PACKAGES = {"v1": "core/v1", "metav1": "meta/v1", "corev1": "core/v1", "api": "core/v1"}

_TYPE = re.compile(r"^type (\w+) (.+)$")
_FIELD = re.compile(r'^\s+(?:(\w+)\s+)?(\S+)\s+`json:"([^"]*)"')
_MARK = re.compile(r"//\s*\+(\w[\w:]*)(?:=(.*))?$")


class GoField(NamedTuple):
    """A field as the source has it; ``name`` is that in JSON, empty for what is inline."""

    name: str
    type: str
    options: frozenset[str]
    marks: dict[str, list[str]]


class GoType(NamedTuple):
    """A struct with fields, or another name of ``alias``."""

    alias: str
    fields: list[GoField]
    marks: dict[str, list[str]]


def read_types(path: Path) -> dict[str, GoType]:
    """The types that a source file defines."""
    types: dict[str, GoType] = {}
    marks: dict[str, list[str]] = {}
    current: GoType | None = None
    for line in path.read_text().splitlines():
        if mark := _MARK.search(line):
            marks.setdefault(mark[1], []).append((mark[2] or "").strip())
        elif definition := _TYPE.match(line):
            current = GoType("" if definition[2] == "struct {" else definition[2].split(" //")[0], [], marks)
            types[definition[1]] = current
            marks = {}
        elif current and (field := _FIELD.match(line)):
            name, *options = field[3].split(",")
            current.fields.append(GoField(name, field[2], frozenset(options), marks))
            marks = {}
        elif not line.strip().startswith("//") and line.strip():
            marks = {}
    return types


class Recorder:
    """Writes the lines of the types that are reached."""

    def __init__(self, api: Path, meta: Path) -> None:
        self._folders = {"meta/v1": meta / "pkg/apis/meta/v1"}
        self._api = api
        self._sources: dict[str, dict[str, GoType]] = {}
        self.lines: dict[str, dict[str, str]] = {}

    def record(self, package: str, name: str) -> str:
        """The name of the type in the file, or of what it is another name of."""
        source = self._source(package)[name]
        if source.alias:
            return self._form(package, source.alias, source.marks)
        full = f"{package}.{name}"
        if full not in self.lines:
            self.lines[full] = {}
            if source.marks.get("structType") == ["atomic"]:
                self.lines[full][""] = "atomic"
            self.lines[full] |= dict(self._fields(package, source))
        return full

    def _source(self, package: str) -> dict[str, GoType]:
        if package not in self._sources:
            folder = self._folders.get(package, self._api / package)
            types: dict[str, GoType] = {}
            for path in sorted(folder.glob("*types*.go")):
                types |= read_types(path)
            self._sources[package] = types
        return self._sources[package]

    def _fields(self, package: str, source: GoType) -> Iterator[tuple[str, str]]:
        for field in source.fields:
            if field.name == "-":
                continue
            if not field.name:
                inner, _, name = field.type.lstrip("*").rpartition(".")
                inner = PACKAGES.get(inner, package)
                yield from self._fields(inner, self._source(inner)[name])
            else:
                yield field.name, self._line(package, field)

    def _line(self, package: str, field: GoField) -> str:
        line = self._form(package, field.type.lstrip("*"), field.marks)
        if "atomic" in field.marks.get("structType", []) + field.marks.get("mapType", []) and not line.endswith("!"):
            line += "!"
        line = "*" * field.type.startswith("*") + line
        line += "?" * bool(field.options & {"omitempty", "omitzero"} and not self._always(line, field))
        default = field.marks.get("default", [""])[0].strip('"')
        return line + (f"={default}" if default else "")

    def _always(self, line: str, field: GoField) -> bool:
        """A struct without a pointer is written where it is empty."""
        return "omitzero" not in field.options and "." in line and line[0] not in "*[{<"

    def _form(self, package: str, text: str, marks: dict[str, list[str]]) -> str:
        if text in SPECIAL:
            return SPECIAL[text]
        if text in BASIC:
            return BASIC[text]
        if text.startswith("[]"):
            return self._list(self._form(package, text[2:].lstrip("*"), {}), marks)
        if text.startswith("map["):
            return f"<{self._form(package, text.partition(']')[2].lstrip('*'), {})}>"
        prefix, _, name = text.rpartition(".")
        if prefix == "types":
            return "string"
        if prefix and prefix not in PACKAGES:
            return "any"  # of an alpha version, whose fields the server drops
        return self.record(PACKAGES[prefix] if prefix else package, name)

    def _list(self, element: str, marks: dict[str, list[str]]) -> str:
        relation = marks.get("listType", [""])[0]
        merging = any(value.startswith("merge") for value in marks.get("patchStrategy", []))
        keys = marks.get("listMapKey") or (marks.get("patchMergeKey") if merging and not relation else None)
        if relation == "map" or (keys and not relation):
            return f"[{element}|{','.join(keys or [])}]"
        if relation == "set" or (merging and not relation):
            return f"{{{element}}}"
        return f"[{element}]"


def main(api: str, meta: str) -> None:
    """Write the file."""
    recorder = Recorder(Path(api), Path(meta))
    for package, kinds in KINDS.items():
        for kind in kinds.split():
            recorder.record(package, kind)
    lines = {_qualify_name(name): fields for name, fields in recorder.lines.items()}
    lines["custom/v1.Custom"] = {
        "apiVersion": "string?",
        "kind": "string?",
        "metadata": "meta/v1.ObjectMeta",
        "*": "any",
    }
    texts = [f"{json.dumps(name)}: {json.dumps(lines[name])}" for name in sorted(lines)]
    Path(__file__).with_name("types.json").write_text("{\n" + ",\n".join(texts) + "\n}\n")


def _qualify_name(name: str) -> str:
    """``networking/v1.Ingress`` → ``networking.k8s.io/v1.Ingress`` where it is a kind; other names only refer."""
    package, _, kind = name.partition(".")
    group, _, version = package.partition("/")
    known = KINDS.get(package, "").split()
    return f"{GROUPS.get(group, group)}/{version}.{kind}" if kind in known else name


if __name__ == "__main__":
    main(*sys.argv[1:])
