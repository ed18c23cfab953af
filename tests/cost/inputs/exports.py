"""Exports of the platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from reconciler.convert.export.convert import normalise_resources
from reconciler.convert.notes import make_findings
from reconciler.convert.reader import read_all
from reconciler.documents.writer import render_stream
from tests.cost.growth import Shape


def exported(make: Callable[[range], Any], count: int = 400) -> Shape:
    """The resources that ``make`` has for the numbers."""

    def read_export(raw: bytes) -> None:
        contents = {"all.yaml": raw}
        sources, _ = read_all(contents, frozenset({"tags"}))
        imported = normalise_resources(sources, "acme")
        make_findings(imported.remarks, contents)
        render_stream(draft.body for draft in imported.drafts)

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
    "resources": exported(
        lambda ns: [{"kind": "secret", "name": f"s{n}", "type": "opaque", "data": {"payload": "a"}} for n in ns]
    ),
    "items": exported(lambda ns: {"kind": "list", "items": [{"kind": "gvc", "name": f"g{n}"} for n in ns]}),
    "duplicates": exported(lambda ns: [{"kind": "gvc", "name": "g", "description": str(n)} for n in ns]),
    "members of one GVC": exported(
        lambda ns: [{"kind": "gvc", "name": "g"}, *({"kind": "identity", "name": f"i{n}"} for n in ns)]
    ),
    "members of no GVC": exported(
        lambda ns: [
            {"kind": "gvc", "name": f"g{n % 2}"} if n < 2 else {"kind": "identity", "name": f"i{n}"} for n in ns
        ]
    ),
    "tags": exported(lambda ns: {"kind": "gvc", "name": "g", "tags": {f"t{n}": "a" for n in ns}}),
    "built-in tags": exported(lambda ns: {"kind": "gvc", "name": "g", "tags": {f"platform/t{n}": "a" for n in ns}}),
    "variables": exported(lambda ns: workload(env=[{"name": f"V{n}", "value": "a"} for n in ns])),
    "variables that are wrong": exported(lambda ns: workload(env=[{"name": f"V{n}", "value": 1} for n in ns])),
    "containers that are wrong": exported(
        lambda ns: {
            "kind": "workload",
            "name": "w",
            "gvc": "shop",
            "spec": {"containers": [{"name": f"c{n}", "image": 1, "cpu": []} for n in ns]},
        }
    ),
    "unknown fields": exported(lambda ns: workload(**{f"word{n}": "a" for n in ns})),
    "unknown fields of variables": exported(lambda ns: workload(env=[{"name": f"V{n}", "word": "a"} for n in ns])),
    "links": exported(
        lambda ns: {
            "kind": "policy",
            "name": "p",
            "targetKind": "secret",
            "targetLinks": [f"/org/acme/secret/s{n}" for n in ns],
        }
    ),
    "links to itself": exported(
        lambda ns: {"kind": "gvc", "name": "g", "links": [{"rel": "x", "href": f"/{n}"} for n in ns]}
    ),
    "keys of a secret": exported(
        lambda ns: {"kind": "secret", "name": "s", "type": "dictionary", "data": {f"k{n}": "a" for n in ns}}
    ),
    "keys of a secret that are wrong": exported(
        lambda ns: {"kind": "secret", "name": "s", "type": "dictionary", "data": {f"k{n}": {} for n in ns}}
    ),
    "things that are no manifests": exported(lambda ns: [*ns]),
}
