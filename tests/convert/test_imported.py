"""An imported manifest declares the same as the exported one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reconciler.convert.export.convert import normalise_resources
from reconciler.convert.reader import read_all
from reconciler.documents.reader import TEXT_FIELDS, parse_documents
from reconciler.documents.writer import render_document, render_stream
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.resource import Manifest
from tests.convert.test_nothing_is_lost import mutated
from tests.project.tree import ROOT
from tests.support.cases import CASES
from tests.support.command_sandbox import here

MANIFESTS = sorted([*(ROOT / "examples/repo").rglob("*.yaml"), *(CASES / "rules").glob("*/passes.yaml")])
OTHERS = ("settings", "repository", "status", "run")
"""What is no kind."""
KIND_CASES = sorted(
    path
    for path in (CASES / "schemas").glob("*-full.yaml")
    if not path.name.startswith(("settings", "repository", "status", "run"))
)
DIALECT = ManifestContext("acme", secret_key=b"key")


def manifests(raw: bytes, dialect: ManifestContext = DIALECT) -> dict[tuple[str, str, str], bytes]:
    decoded = decode_manifests(raw, dialect)
    return {_key(each): each.body for each in decoded.manifests}


def _key(manifest: Manifest) -> tuple[str, str, str]:
    return str(manifest.kind), manifest.gvc, manifest.name


def imported(raw: bytes, org: str = "acme", scheme: str = "platform") -> bytes:
    sources, faults = read_all({"a.yaml": raw}, TEXT_FIELDS)
    assert faults == []
    return render_stream(draft.body for draft in normalise_resources(sources, org, scheme).drafts).encode()


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_normal_form_stays(path: Path) -> None:
    before = manifests(path.read_bytes())
    assert manifests(imported(path.read_bytes())) == {key: body for key, body in before.items() if not _left_out(key)}


@pytest.mark.parametrize("path", KIND_CASES, ids=lambda path: path.stem)
def test_the_normal_form_stays_where_every_field_is_set(path: Path) -> None:
    for document in parse_documents(path.read_bytes()).documents:
        raw = render_document(document.value).encode()
        before = manifests(raw)
        assert len(before) == 1
        assert manifests(imported(raw)) == {key: body for key, body in before.items() if not _left_out(key)}


def test_importing_twice_changes_nothing() -> None:
    for path in MANIFESTS:
        once = imported(path.read_bytes())
        assert imported(once) == once


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_another_spelling_means_the_same(path: Path) -> None:
    """What another spelling's reader makes of the export is what ours makes of the import."""
    raw = path.read_text().replace("platform://", "cloud://").replace("$(PLATFORM_", "$(CLOUD_").encode()
    raw = raw.replace(b"platform/", b"cloud/")
    before = manifests(raw, ManifestContext("acme", "cloud", b"key"))
    after = manifests(imported(raw, scheme="cloud"))
    assert after == {key: body for key, body in before.items() if not _left_out(key)}


@pytest.mark.parametrize("path", [*MANIFESTS, *KIND_CASES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_export_makes_an_import_fail(path: Path) -> None:
    dice = random.Random(str(path.name))
    sources, _ = read_all({"a.yaml": path.read_bytes()}, TEXT_FIELDS)
    for source in sources:
        for _ in range(15):
            changed = source._replace(value=mutated(source.value, dice))
            text = render_stream(draft.body for draft in normalise_resources([changed], "acme", "cloud").drafts)
            assert parse_documents(text.encode()).faults == []


def test_members_of_an_exported_gvc_lie_below_it(tmp_path: Path) -> None:
    gvc = "kind: gvc\nname: {}\nspec: {{staticPlacement: {{locationLinks: [//location/here]}}}}\n"
    member = "---\nkind: workload\nname: web\nspec: {type: standard, containers: [{name: a, image: 'a:1'}]}\n"
    for name in ("dev", "prod"):
        (tmp_path / f"{name}.yaml").write_text(gvc.format(name) + member)
    assert here("import", "dev.yaml", "prod.yaml", "--out", "all", cwd=tmp_path) == (0, "", "")
    written = {str(path.relative_to(tmp_path / "all")) for path in (tmp_path / "all").rglob("*.yaml")}
    assert written == {f"{name}/{file}" for name in ("dev", "prod") for file in ("gvc.yaml", "workload/web.yaml")}
    assert here("validate", "all", cwd=tmp_path).code == 0


def test_a_resource_without_its_gvc_is_not_written_to_a_tree(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: identity\nname: web\n")
    refused = here("import", "a.yaml", "--out", "all", cwd=tmp_path)
    assert (refused.code, "the GVC of identity/web is not known" in refused.err) == (1, True)
    assert not (tmp_path / "all").exists()
    assert here("import", "a.yaml", "--gvc", "shop", "--out", "all", cwd=tmp_path).code == 0
    assert (tmp_path / "all/shop/identity/web.yaml").exists()


def test_links_are_as_short_as_they_can_be() -> None:
    raw = b"""kind: workload
name: web
gvc: shop
spec:
  identityLink: /org/acme/gvc/shop/identity/web
  containers: [{name: main, image: /org/acme/image/web:1}]
  firewallConfig:
    internal:
      inboundAllowType: workload-list
      inboundAllowWorkload: [/org/acme/gvc/shop/workload/a, /org/acme/gvc/ops/workload/b, /org/other/gvc/x/workload/c]
"""
    text = imported(raw).decode()
    assert "identityLink: //identity/web\n" in text
    assert "image: //image/web:1\n" in text
    links = ["- //workload/a\n", "- //gvc/ops/workload/b\n", "- /org/other/gvc/x/workload/c\n"]
    assert all(link in text for link in links)


def test_an_import_that_breaks_its_schema_keeps_its_fields() -> None:
    spec = b"{loadBalancer: {dedicated: false, trustedProxies: many}, staticPlacement: {locationLinks: [{}, [1]]}}"
    raw = b"kind: gvc\nname: shop\nspec: " + spec
    assert b"trustedProxies: many" in imported(raw)
    assert b"- {}" in imported(raw)
    assert b"dedicated: false" not in imported(raw), "the rest loses its defaults all the same"


def _left_out(key: tuple[str, str, str]) -> bool:
    """The platform's own, which an import leaves out."""
    kind, _, name = key
    return kind in ("group", "policy") and name.partition("-")[0] in ("superusers", "viewers")
