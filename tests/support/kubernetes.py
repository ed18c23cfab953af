"""Objects against the schemas of Kubernetes, as ``kubernetes_validate`` has them; the cluster that tests may use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate

BUILT_IN = frozenset({"v1", "apps/v1", "autoscaling/v2", "batch/v1", "networking.k8s.io/v1", "policy/v1"})
"""Versions of the API that every cluster serves; other objects are of kinds that are added to a cluster."""

KUBECONFIG = "RECONCILER_TEST_KUBECONFIG"
"""The variable with the kubeconfig of a cluster for tests."""

_SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
_STRICT = "-local-strict"


def _list_versions() -> list[str]:
    """The versions whose schemas there are, the newest first."""
    found = [folder.name[1:].removesuffix(_STRICT) for folder in _SCHEMAS.glob(f"v*{_STRICT}")]
    return sorted(found, key=lambda version: [int(number) for number in version.split(".")], reverse=True)


VERSIONS = _list_versions()[:3]
"""The newest versions of Kubernetes whose schemas there are."""


def find_schema_faults(kube_object: dict[str, Any], version: str) -> list[str]:
    """What is wrong with an object in a version of Kubernetes, in its strict schemas; nothing of added kinds."""
    if kube_object["apiVersion"] not in BUILT_IN:
        return []
    group, _, number = kube_object["apiVersion"].rpartition("/")
    name = "-".join(part for part in (kube_object["kind"].lower(), group.partition(".")[0], number) if part)
    return [error.message for error in _validator(version, name).iter_errors(kube_object)]


@cache
def _validator(version: str, name: str) -> jsonschema_rs.Draft202012Validator:
    schema = json.loads((_SCHEMAS / f"v{version}{_STRICT}" / f"{name}.json").read_text())
    return jsonschema_rs.Draft202012Validator(schema, registry=_definitions(version))


@cache
def _definitions(version: str) -> jsonschema_rs.Registry:
    definitions = json.loads((_SCHEMAS / f"v{version}{_STRICT}" / "_definitions.json").read_text())
    return jsonschema_rs.Registry([(definitions["$id"], definitions)], draft=jsonschema_rs.Draft202012)


def find_test_kubeconfig(environ: Mapping[str, str]) -> Path:
    """The file that the variable names, never a default. Raises ValueError without one."""
    path = Path(environ.get(KUBECONFIG, ""))
    if not path.is_absolute() or not path.is_file():
        raise ValueError(f"{KUBECONFIG} has to be the absolute path of a kubeconfig; no other cluster is used")
    return path
