"""docs/platform describes the platform as the program knows it: names, figures and tables, and no dead link."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from docs.generate.markdown import headings, links
from docs.generate.pages import DOCS
from reconciler.documents.schema.loader import load_schema
from reconciler.manifests.normalize import ManifestContext
from reconciler.manifests.rules.container.buckets import HOSTS
from reconciler.model.key import Kind
from reconciler.model.kinds.table import MANAGE, TABLE
from reconciler.model.platform import BLOCKED_PORTS
from reconciler.pipeline.externals import ExternalResources
from reconciler.review.folder import check_folder
from tests.docs.shell import blocks
from tests.project.tree import ROOT

PLATFORM = DOCS / "platform"
PAGES = ("workload", "volumeset", "cli", "fields")
ON_GENERATED_PAGE = {Kind.ORG, Kind.MK8S, Kind.USER, Kind.IMAGE, Kind.QUOTA}
"""Kinds whose fields only the generated page lists in full."""

BESIDE = """\
kind: location
name: aws-us-west-2
provider: aws
region: us-west-2
---
kind: location
name: gcp-us-east1
provider: gcp
region: us-east1
---
kind: secret
name: database
type: dictionary
data: {password: from-the-example}
"""
"""What the examples refer to."""


@cache
def page(name: str) -> str:
    return (PLATFORM / f"{name}.md").read_text()


@cache
def anchors(path: Path) -> dict[str, str]:
    return headings(path.read_text())


def code(text: str) -> str:
    """Everything in ``text`` that is written as code."""
    return "\n".join(re.findall(r"^```.*?^```$|`[^`\n]+`", text, re.M | re.S))


def section(name: str, heading: str) -> str:
    """What is below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page(name), re.M | re.S)
    assert found, heading
    return found[1]


def documents() -> list[Path]:
    return [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("examples/**/*.md"))]


def test_there_are_these_pages() -> None:
    assert sorted(path.stem for path in PLATFORM.iterdir()) == sorted(PAGES)


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    for link in links(path.read_text()):
        target, _, anchor = link.partition("#")
        if re.match("[a-z]+:", target):
            continue
        there = Path(os.path.normpath(path.parent / target)) if target else path
        assert there.exists(), link
        if anchor:
            assert anchor in anchors(there), link


def test_every_example_is_valid(tmp_path: Path) -> None:
    examples = [(name, block) for name in PAGES for block in blocks(page(name), "yaml")]
    assert len(examples) == 3
    for name, block in [*examples, ("beside", BESIDE)]:
        (tmp_path / f"{name}.yaml").write_text(block)
    found = check_folder(tmp_path, ManifestContext("acme"), ExternalResources())
    assert [finding.message for finding in found.findings if finding.severity == "error"] == []


@pytest.mark.parametrize("kind", sorted(set(Kind) - ON_GENERATED_PAGE))
def test_every_field_of_a_kind_is_described(kind: Kind) -> None:
    described = set(re.findall(r"\w+", code("\n".join(map(page, PAGES)))))
    schema = load_schema(kind)
    assert set(_fields(schema, schema, frozenset())) - described - {"sops"} == set()


def test_the_permissions_are_those_that_are_checked() -> None:
    rows = re.findall(r"^\| ([a-z0-9, ]+) \| (`.*) \|$", section("fields", "Permissions"), re.M)
    tables = {Kind(kind): _granted(text) for kinds, text in rows for kind in kinds.split(", ")}
    tables[Kind.WORKLOAD] = _tabled(section("workload", "Permissions"), ())
    volumes = [name for name in TABLE[Kind.VOLUMESET].permissions if name.startswith("exec.")]
    tables[Kind.VOLUMESET] = _tabled(section("volumeset", "Permissions"), volumes)
    expected = {
        kind: {name: set(more) for name, more in traits.permissions.items() if name != MANAGE}
        for kind, traits in TABLE.items()
    }
    assert tables == expected


def test_the_blocked_ports_and_storage_hosts_are_those_that_are_checked() -> None:
    listed = section("workload", "Blocked ports").partition(".")[0]
    assert {int(number) for number in re.findall(r"\d+", listed)} == BLOCKED_PORTS
    assert all(f"`{host}`" in section("workload", "Object stores") for _, host in HOSTS.values())


def test_every_class_of_volumes_has_its_bounds_speeds_and_storage_classes() -> None:
    spec = load_schema("volumeset")["properties"]["spec"]["properties"]
    fields = (spec["performanceClass"], spec["fileSystemType"])
    classes, systems = ([each for each in one["enum"] if each not in one["x-unmodelled-values"]] for one in fields)
    rows = re.findall(r"^\| `([\w-]+)` \|(?: `(\w+)`)?", section("volumeset", "Performance classes"), re.M)
    assert sorted(rows) == sorted(product(classes, ("", "aws", "azure", "gcp")))
    names = re.findall(r"\* `([\w-]+)`", section("volumeset", "Clusters of your own"))
    assert names == [f"{one}-{other}{end}" for end in ("", "-command") for one, other in product(classes, systems)]


def test_every_type_of_secret_has_its_data() -> None:
    types = re.findall("`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \|", section("fields", "Secret"), re.M)))
    assert [name for name in types if name != "type"] == load_schema("secret")["properties"]["type"]["enum"]


def _granted(text: str) -> dict[str, set[str]]:
    """``create``, ``edit`` → ``view`` as a table."""
    entries = (re.findall("`(.*?)`", each) for each in text.split(","))
    return {name: set(more) for name, *more in entries if name != MANAGE}


def _tabled(text: str, commands: list[str] | tuple[()]) -> dict[str, set[str]]:
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (.*) ?\|$", text, re.M)
    found = {name: set(re.findall("`(.*?)`", more)) for name, more in rows if name != MANAGE}
    return {name: set(commands) if "exec.…" in more else more for name, more in found.items()}


def _fields(node: Any, root: dict[str, Any], seen: frozenset[str]) -> Iterator[str]:
    """Names of fields in a schema and in schemas that it refers to."""
    if isinstance(node, list):
        for member in node:
            yield from _fields(member, root, seen)
    if not isinstance(node, dict):
        return
    # The generated table of fields without effect describes the others.
    yield from (name for name, field in node.get("properties", {}).items() if "x-unmodelled" not in field)
    reference = node.get("$ref", "")
    if reference and reference not in seen:
        file, _, pointer = reference.partition("#")
        there = load_schema(file.removesuffix(".json")) if file else root
        part: Any = there
        for step in filter(None, pointer.split("/")):
            part = part[step]
        yield from _fields(part, there, seen | {reference})
    for name, member in node.items():
        if name not in ("examples", "default"):
            yield from _fields(member, root, seen)
