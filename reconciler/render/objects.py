"""Objects for other tools as YAML, and laid out in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reconciler.documents.writer import render_document

KUSTOMIZATION, README = "kustomization.yaml", "README.md"
_SECRET = "Secret"


def format_objects(objects: Sequence[Mapping[str, Any]]) -> str:
    """``objects`` as YAML documents."""
    return "".join(f"---\n{render_document(item)}" for item in objects)


def lay_out_objects(resources: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], *, secrets: bool) -> dict[str, str]:
    """Files by path: one for each of ``resources``, which are keys with objects, and a kustomization of all.

    Without ``secrets``, there are no Secrets in them, and a README names these.
    """
    files: dict[str, str] = {}
    omitted: list[str] = []
    for key, objects in resources:
        plain = [item for item in objects if secrets or item["kind"] != _SECRET]
        omitted += [_name_object(item) for item in objects if item not in plain]
        if plain:
            files[f"{key}.yaml"] = format_objects(plain)
    content = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(files)}
    readme = {README: _write_readme(omitted)} if omitted else {}
    return {**files, KUSTOMIZATION: format_objects([content]), **readme}


def _name_object(item: Mapping[str, Any]) -> str:
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _write_readme(omitted: Iterable[str]) -> str:
    lines = "".join(f"* `{name}`\n" for name in sorted(omitted))
    return f"""# Secrets that are not here

The objects in this directory use these Secrets. They stay as they are on the cluster that has them; another cluster
needs them first.

{lines}"""
