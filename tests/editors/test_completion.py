"""What an editor shows for the examples while typing: fields with their meaning, and faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.documents.schema.loader import load_schema
from tests.editors.server import LanguageServer
from tests.project.tree import ROOT

EXAMPLE = ROOT / "examples/repo"
SCHEMAS = ROOT / "schemas"
ERROR = 1


@pytest.fixture
def server() -> Iterator[LanguageServer]:
    with LanguageServer(EXAMPLE) as running:
        yield running


def place(text: str, words: str) -> tuple[int, int]:
    """Line and column, counted from 0, at which ``words`` end."""
    before = text[: text.index(words) + len(words)]
    return before.count("\n"), len(before) - before.rfind("\n") - 1


def with_line(path: Path, after: str, line: str) -> str:
    """The text of ``path`` with ``line`` below the line ``after``."""
    text = path.read_text()
    assert text.count(f"{after}\n") == 1, after
    return text.replace(f"{after}\n", f"{after}\n{line}\n")


def errors_of(diagnostics: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Line, counted from 1, and message of each error."""
    return [(each["range"]["start"]["line"] + 1, each["message"]) for each in diagnostics if each["severity"] == ERROR]


def test_nothing_is_wrong_with_the_examples(server: LanguageServer) -> None:
    found = {path.name: errors_of(server.open(path)) for path in sorted(EXAMPLE.rglob("*.yaml"))}
    assert len(found) > 5
    assert {name: errors for name, errors in found.items() if errors} == {}


def test_a_field_is_offered_with_what_it_means(server: LanguageServer) -> None:
    path = EXAMPLE / "shop/web.yaml"
    text = with_line(path, "      memory: 128Mi", "      ")
    server.open(path, text)
    offered = server.completions(path, *place(text, "      memory: 128Mi\n      "))
    described = load_schema("workload")["properties"]["spec"]["properties"]["containers"]["items"]["properties"]
    assert offered["livenessProbe"]["documentation"] == described["livenessProbe"]["description"]
    assert {"workingDir", "inheritEnv", "volumes"} <= offered.keys()
    assert not {"image", "memory"} & offered.keys()


def test_a_value_is_offered(server: LanguageServer) -> None:
    path = EXAMPLE / "shop/web.yaml"
    text = path.read_text().replace("type: serverless", "type: ")
    server.open(path, text)
    assert {"serverless", "standard", "stateful", "cron"} <= server.completions(path, *place(text, "  type: ")).keys()


def test_the_kinds_are_offered_where_a_document_begins(server: LanguageServer) -> None:
    path = EXAMPLE / "shop/identities.yaml"
    text = path.read_text().split("---")[0] + "kind: "
    server.open(path, text)
    assert {"workload", "mk8s"} <= server.completions(path, *place(text, "kind: ")).keys()


def test_an_unknown_field_and_a_bad_value_are_errors_where_they_stand(server: LanguageServer) -> None:
    path = EXAMPLE / "shop/web.yaml"
    text = with_line(path, "      memory: 128Mi", "      memmory: 1Gi").replace("cpu: 100m", "cpu: 0.5")
    lines = text.splitlines()
    found = errors_of(server.open(path, text))
    assert [line for line, _ in found] == [lines.index("      cpu: 0.5") + 1, lines.index("      memmory: 1Gi") + 1]
    assert "memmory" in found[1][1]


def test_each_document_of_a_file_is_checked_by_its_own_kind(server: LanguageServer) -> None:
    path = EXAMPLE / "shop/db.yaml"
    text = with_line(path, "description: The orders", "replicas: 1") + "  schedule: now\n"
    found = errors_of(server.open(path, text))
    assert [line for line, _ in found] == [text[: text.index("replicas: 1")].count("\n") + 1, text.count("\n")]


def test_the_catalogue_gives_a_file_the_schema_of_its_kind_by_its_name(tmp_path: Path) -> None:
    listed = json.loads((SCHEMAS / "catalog.json").read_bytes())["schemas"]
    chosen = {(SCHEMAS / entry["url"]).as_uri(): entry["fileMatch"] for entry in listed}
    with LanguageServer(tmp_path, {"schemas": chosen}) as server:
        path = tmp_path / "orders.volumeset.yaml"
        found = errors_of(server.open(path, "kind: volumeset\nname: data\nspec: {initialCapacity: 5}\n"))
    assert {line for line, _ in found} == {3}
