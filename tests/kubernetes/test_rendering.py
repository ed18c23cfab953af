"""What is rendered is what the API server stores: nothing of it is refused, changed or stored in another form.

So a second apply of the same objects changes nothing, and what is observed afterwards is no drift. Nor does the server
warn of anything: no pod has more than the baseline of Pod Security permits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.kubernetes.rendering.test_cases import FOLDERS, result_of
from tests.kubernetes.cluster.control_plane import Cluster
from tests.support.kubernetes import BUILT_IN

pytestmark = pytest.mark.cluster

STRICT = {"fieldManager": "reconciler", "fieldValidation": "Strict"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


def apply(cluster: Cluster, kube_object: dict[str, Any]) -> dict[str, Any]:
    """The object as the server has it after a server-side apply without any force."""
    answer = cluster.api.patch(cluster.path_of(kube_object), params=STRICT, headers=APPLY, json=kube_object)
    assert answer.is_success, answer.text
    assert "warning" not in answer.headers or kube_object["kind"] == "Secret", answer.headers["warning"]
    stored: dict[str, Any] = answer.json()
    return stored


def find_differences(sent: Any, stored: Any, path: str = "") -> Iterator[str]:
    """The fields of ``sent`` that ``stored`` does not have, or has in another form."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        for name, member in sent.items():
            yield from find_differences(member, stored.get(name), f"{path}.{name}")
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for number, (member, other) in enumerate(zip(sent, stored, strict=True)):
            yield from find_differences(member, other, f"{path}[{number}]")
    elif sent != stored:
        yield f"{path}: {sent!r} is stored as {stored!r}"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_objects_are_stored_as_they_are_applied_and_warn_of_nothing(cluster: Cluster, folder: Path) -> None:
    objects = [one for one in result_of(folder).get("objects", []) if one["apiVersion"] in BUILT_IN]
    namespace = f"rendered-{FOLDERS.index(folder)}"
    for kube_object in objects:
        place = "name" if kube_object["kind"] == "Namespace" else "namespace"
        kube_object["metadata"][place] = namespace
    labels = {"pod-security.kubernetes.io/warn": "baseline"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    for kube_object in objects:
        stored = apply(cluster, kube_object)
        assert list(find_differences(kube_object, stored)) == []
        generation = stored["metadata"].get("generation")
        assert apply(cluster, kube_object)["metadata"].get("generation") == generation
    cluster.api.delete(f"/api/v1/namespaces/{namespace}").raise_for_status()
