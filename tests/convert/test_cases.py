"""Kubernetes documents as people write them, and their conversion: a file for each sentence.

``REWRITE_CASES=1`` writes the present output into the cases; read it before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from reconciler.convert.rules import RULEBOOK
from reconciler.documents.reader import parse_documents
from reconciler.documents.writer import render_document
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Severity
from reconciler.pipeline.externals import ExternalResources
from reconciler.review.folder import check_folder
from tests.support.cases import CASES
from tests.support.command_sandbox import CommandResult, here

FOLDER = CASES / "convert"
TOO_LARGE_FOR_A_CASE = {"convert-too-large", "convert-outside"}
"""Rules of which tests/platform_cli/test_stack_files.py has projects: large ones, and files outside of a folder."""
FILES = sorted(FOLDER.glob("*.yaml"))

GVC = """kind: gvc
name: {name}
spec:
  staticPlacement:
    locationLinks: [//location/aws-us-west-2]
"""


def case_of(file: Path) -> dict[str, Any]:
    (document,) = parse_documents(file.read_bytes(), text_fields=frozenset()).documents
    value: dict[str, Any] = document.value
    return value


def converted(case: dict[str, Any], tmp_path: Path) -> CommandResult:
    for name, text in case.get("files", {"input.yaml": case.get("input", "")}).items():
        (tmp_path / name).write_text(text)
    words = case.get("words", ["convert", "input.yaml"])
    return here(*words, cwd=tmp_path)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_case_is_converted_as_its_file_expects(file: Path, tmp_path: Path) -> None:
    case = case_of(file)
    result = converted(case, tmp_path)
    now = {**case, "output": result.out, "messages": result.err, "code": result.code}
    if os.environ.get("REWRITE_CASES"):
        file.write_text(render_document(now))
        return
    assert now == case


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_converted_manifests_are_valid_in_a_gvc(file: Path, tmp_path: Path) -> None:
    case = case_of(file)
    if case["code"] or case.get("words", ["convert"])[0] != "convert" or not case["output"]:
        pytest.skip("nothing is written")
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "all.yaml").write_text(case["output"])
    written_to = {one.value["gvc"] for one in parse_documents(case["output"].encode()).documents if "gvc" in one.value}
    for name in written_to:
        (folder / f"gvc-{name}.yaml").write_text(GVC.format(name=name))
    checked = check_folder(folder, ManifestContext("acme"), ExternalResources(settings_unknown=True))
    errors = [each for each in checked.findings if each.severity is Severity.ERROR]
    missing = "[convert-missing]" in case["messages"] or "[convert-pull-secret]" in case["messages"]
    assert [each for each in errors if not (missing and each.rule == "missing-reference")] == []


def test_every_rule_of_conversions_is_in_a_case() -> None:
    texts = "".join(file.read_text() for file in [*FILES, *(CASES / "compose").glob("*.yaml")])
    assert {rule for rule in RULEBOOK if f"[{rule}]" not in texts} == TOO_LARGE_FOR_A_CASE


def test_every_case_describes_what_it_shows() -> None:
    sentences = [case_of(file)["description"] for file in FILES]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
