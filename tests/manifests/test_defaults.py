"""Fields that have their default can be left out: the normal form is the same without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.documents.writer import render_document
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.defaults import drop_defaults
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.resource import GVC_PLACEHOLDER, Manifest
from tests.project.tree import ROOT
from tests.support.cases import CASES

DIALECT = ManifestContext("acme", secret_key=b"key")
MANIFESTS = sorted((ROOT / "examples/repo").rglob("*.yaml"))
KIND_CASES = sorted(CASES.glob("schemas/*-full.yaml"))


def decode(raw: bytes) -> list[Manifest]:
    """The manifests in ``raw``; secrets are left out, whose data is sealed."""
    return [manifest for manifest in decode_manifests(raw, DIALECT).manifests if manifest.kind != "secret"]


def read_body(manifest: Manifest) -> dict[str, Any]:
    """The fields of ``manifest``, in the GVC shop."""
    body: dict[str, Any] = msgspec.json.decode(manifest.body.replace(GVC_PLACEHOLDER.encode(), b"shop"))
    return body


@pytest.mark.parametrize("path", [*MANIFESTS, *KIND_CASES], ids=lambda path: path.stem)
def test_what_is_left_out_comes_back(path: Path) -> None:
    for manifest in decode(path.read_bytes()):
        body = read_body(manifest)
        shorter = drop_defaults(manifest.kind, body)
        [again] = decode(render_document(shorter).encode())
        assert read_body(again) == body
        assert len(str(shorter)) <= len(str(body))


def test_a_plain_workload_is_shown_as_it_is_written() -> None:
    written = """kind: workload
name: web
spec:
  type: standard
  containers: [{name: main, image: //image/web:1, ports: [{number: 8080}]}]
"""
    [manifest] = decode(written.encode())
    assert drop_defaults(manifest.kind, read_body(manifest)) == {
        "kind": "workload",
        "name": "web",
        "gvc": "shop",
        "spec": {
            "type": "standard",
            "containers": [{"name": "main", "image": "/org/acme/image/web:1", "ports": [{"number": 8080}]}],
            "defaultOptions": {"autoscaling": {"metric": "disabled"}, "capacityAI": True},
        },
    }
