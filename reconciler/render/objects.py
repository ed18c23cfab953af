"""Objects for other tools as YAML, and laid out in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reconciler.documents.writer import render_document

KUSTOMIZATION = "kustomization.yaml"
_SECRET = "Secret"


def format_objects(objects: Sequence[Mapping[str, Any]]) -> str:
    """``objects`` as YAML documents."""
    return "".join(f"---\n{render_document(item)}" for item in objects)


def lay_out_objects(resources: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], *, secrets: bool) -> dict[str, str]:
    """Files by path: one for each of ``resources``, which are keys with objects, and a kustomization of all.

    Without ``secrets``, there are no Secrets in them.
    """
    files: dict[str, str] = {}
    for key, objects in resources:
        plain = [item for item in objects if secrets or item["kind"] != _SECRET]
        if plain:
            files[f"{key}.yaml"] = format_objects(plain)
    content = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(files)}
    return {**files, KUSTOMIZATION: format_objects([content])}
