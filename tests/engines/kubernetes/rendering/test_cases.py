"""Manifests and the objects that they become: a folder for each sentence below tests/cases/kubernetes.

``REWRITE_CASES=1`` writes the present objects into the cases; read them before you commit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml

from reconciler.documents.writer import render_document
from reconciler.engines.kubernetes.rendering import names
from reconciler.engines.kubernetes.rendering.limitations import list_limitations
from reconciler.engines.kubernetes.rendering.namespace import list_group_kinds, render_namespace
from reconciler.engines.kubernetes.rendering.workload import render_workload
from reconciler.errors import EngineError
from tests.engines.kubernetes.rendering.kit import (
    Setup,
    decode,
    namespace_inputs,
    workload_inputs,
)
from tests.support.cases import CASES
from tests.support.kubernetes import VERSIONS, find_schema_faults

FOLDERS = sorted(path.parent for path in CASES.glob("kubernetes/*/manifest.yaml"))
OWN_LABELS = {names.MANAGED_BY, names.NAME, names.INSTANCE, names.ORG, names.GVC, names.LOCATION}
OWN_ANNOTATIONS = {names.KEY, names.SOURCE, names.DIGEST, names.VERSION}


def setup_of(folder: Path) -> Setup:
    file = folder / "features.yaml"
    return msgspec.convert(yaml.safe_load(file.read_text()), Setup) if file.exists() else Setup()


def result_of(folder: Path) -> dict[str, Any]:
    """The objects of a case, and what is not enforced; or the error instead."""
    setup = setup_of(folder)
    manifests = decode((folder / "manifest.yaml").read_text(), setup.scheme)
    if setup.shows == "namespace":
        return {"objects": render_namespace(namespace_inputs(manifests, setup))}
    inputs = workload_inputs(manifests, setup)
    try:
        objects = render_workload(inputs)
    except EngineError as error:
        return {"error": f"{error.reason}: {error}"}
    return {"not_enforced": list(list_limitations(inputs)), "objects": objects}


def shown(result: dict[str, Any], setup: Setup) -> dict[str, Any]:
    """The part of a result that its case compares: labels and annotations are the same in most of them."""
    objects = [one for one in result.get("objects", []) if not setup.kinds or one["kind"] in setup.kinds]
    if setup.metadata or "error" in result:
        return {**result, "objects": objects} if objects else result
    return {**result, "objects": [without_own_metadata(one) for one in objects]}


def without_own_metadata(kube_object: dict[str, Any]) -> dict[str, Any]:
    """``kube_object`` without the labels and annotations of its owner, which it must have."""
    metadata = kube_object["metadata"]
    labels, annotations = metadata["labels"], metadata["annotations"]
    assert labels.keys() >= OWN_LABELS, kube_object["kind"]
    assert annotations.keys() >= OWN_ANNOTATIONS, kube_object["kind"]
    more = {name: text for name, text in annotations.items() if name not in OWN_ANNOTATIONS}
    rest = {name: value for name, value in metadata.items() if name not in ("labels", "annotations", "namespace")}
    return {**kube_object, "metadata": {**rest, "annotations": more} if more else rest}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_manifests_become_the_objects_of_their_case(folder: Path) -> None:
    golden, now = folder / "objects.yaml", shown(result_of(folder), setup_of(folder))
    if os.environ.get("REWRITE_CASES"):
        golden.write_text(render_document(now))
    assert now == yaml.safe_load(golden.read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_objects_are_valid_in_the_three_newest_versions(folder: Path) -> None:
    for kube_object in result_of(folder).get("objects", []):
        for version in VERSIONS:
            assert find_schema_faults(kube_object, version) == []


def test_validation_agrees_with_that_of_the_package() -> None:
    folder = next(folder for folder in FOLDERS if folder.name == "a-standard-workload-is-a-deployment")
    (deployment,) = (one for one in result_of(folder)["objects"] if one["kind"] == "Deployment")
    kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)
    wrong = {**deployment, "spec": {**deployment["spec"], "replica": 1}}
    assert find_schema_faults(wrong, VERSIONS[0]) != []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_object_has_an_empty_field_that_the_server_would_not_store(folder: Path) -> None:
    meaningful_when_empty = {"podSelector"}

    def empties(value: Any, path: str) -> list[str]:
        if isinstance(value, dict):
            return [found for name, member in value.items() for found in check(name, member, f"{path}.{name}")]
        if isinstance(value, list):
            return [found for place, member in enumerate(value) for found in empties(member, f"{path}[{place}]")]
        return []

    def check(name: str, member: Any, path: str) -> list[str]:
        empty = member is None or member == [] or (member == {} and name not in meaningful_when_empty)
        return [path] if empty else empties(member, path)

    assert [found for one in result_of(folder).get("objects", []) for found in empties(one, one["kind"])] == []


def test_the_parent_of_a_namespace_names_all_kinds_that_are_applied_there() -> None:
    for folder in FOLDERS:
        setup = setup_of(folder)
        listed = list_group_kinds(namespace_inputs(decode((folder / "manifest.yaml").read_text(), setup.scheme), setup))
        for kube_object in result_of(folder).get("objects", []):
            group = kube_object["apiVersion"].rpartition("/")[0]
            kind = f"{kube_object['kind']}.{group}" if group else kube_object["kind"]
            assert kind in listed or kind in ("Namespace", "ConfigMap"), folder.name
