"""Each schema is used alone, and without a network, by the tools that people have: ajv and check-jsonschema.

`tests/setup-debian.sh packaging` installs them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from docs.generate.schemas import MEANINGS
from reconciler.documents.reader import parse_documents
from reconciler.documents.schema.loader import KIND_NAMES, SCHEMA_NAMES
from tests.documents.tree import CASES, full
from tests.project.tree import ROOT

pytestmark = pytest.mark.packaging

MODULES = ROOT / "build/ajv/node_modules"
CHECK_JSONSCHEMA = ROOT / "build/check-jsonschema/bin/check-jsonschema"
SCHEMAS = ROOT / "schemas"
NAMES = [*SCHEMA_NAMES, "manifest", "common"]
COMPILE = """
const fs = require("fs");
const Ajv = require("ajv/dist/2020");
const {files, annotations} = JSON.parse(fs.readFileSync(0, "utf8"));
const faults = {};
for (const file of files) {
  const said = [];
  const note = (text) => said.push(String(text));
  const logger = {log: note, warn: note, error: note};
  // A `oneOf` of required fields names them where their properties are not, which strictRequired refuses.
  const ajv = new Ajv({strict: true, strictRequired: false, allowUnionTypes: true, logger});
  ajv.addVocabulary(annotations);
  try { ajv.compile(JSON.parse(fs.readFileSync(file, "utf8"))); } catch (error) { note(error.message); }
  if (said.length) faults[file] = said;
}
console.log(JSON.stringify(faults));
"""
"""Compiles each schema by an Ajv of its own, with its strict mode; what it finds or warns of, by file."""


class Verdict(NamedTuple):
    """A document, the schema that it is checked with, and whether it is valid."""

    schema: str
    document: Any
    valid: bool


def find_tool(path: Path) -> Path:
    """``path`` of a tool; without it the test skips, in CI it fails."""
    if not path.exists():
        message = f"{path.name} is missing: run `tests/setup-debian.sh packaging`"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return path


def run_offline(home: Path, *words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """How ``words`` end with a ``home`` that has no cache, where every proxy refuses."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "NODE_PATH": str(MODULES), **nowhere}
    return subprocess.run(
        words, cwd=home, env=env, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )


def mistype(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """``document`` with one mistake each: a field too much, a wrong case, no name, a list as its kind."""
    yield {**document, "nonsense": 1}
    yield {("Name" if field == "name" else field): value for field, value in document.items()}
    yield {field: value for field, value in document.items() if field != "name"}
    yield {**document, "kind": [document["kind"]]}


@cache
def list_verdicts() -> list[Verdict]:
    """The documents of the examples, those that show every field, and mistyped ones, with the verdict of each."""
    examples = [
        document.value
        for path in sorted((ROOT / "examples/repo").rglob("*.yaml"))
        for document in parse_documents(path.read_bytes()).documents
    ]
    assert len(examples) > 10
    verdicts = []
    for document in examples:
        for schema in (document["kind"], "manifest"):
            verdicts.append(Verdict(schema, document, valid=True))
            verdicts += [Verdict(schema, wrong, valid=False) for wrong in mistype(document)]
    for name in SCHEMA_NAMES:
        schemas = (name, "manifest") if name in KIND_NAMES else (name,)
        verdicts += [Verdict(schema, document, valid=True) for schema in schemas for document in full(name)]
    for case in yaml.safe_load((CASES / "refused.yaml").read_bytes()):
        (document,) = parse_documents(case["document"].encode()).documents
        verdicts.append(Verdict(case["about"], document.value, valid=False))
    return verdicts


def write_documents(folder: Path, schema: str) -> tuple[list[Path], list[Path]]:
    """The files in ``folder`` of the documents that ``schema`` takes, and of those that it refuses."""
    files: dict[bool, list[Path]] = {True: [], False: []}
    for number, verdict in enumerate(list_verdicts()):
        if verdict.schema == schema:
            path = folder / f"{'valid' if verdict.valid else 'wrong'}-{number}.json"
            path.write_text(json.dumps(verdict.document))
            files[verdict.valid].append(path)
    return files[True], files[False]


def list_refused_by_ajv(home: Path, schema: str, files: Sequence[Path]) -> set[str]:
    """The names of ``files`` that the command of ajv refuses."""
    chosen = [word for path in files for word in ("-d", path.name)]
    options = ["--spec=draft2020", "--strict=false", "--errors=line", "-s", str(SCHEMAS / f"{schema}.json")]
    done = run_offline(home, find_tool(MODULES / ".bin/ajv"), "validate", *options, *chosen)
    accepted = {line.removesuffix(" valid") for line in done.stdout.splitlines() if line.endswith(" valid")}
    refused = {line.removesuffix(" invalid") for line in done.stderr.splitlines() if line.endswith(" invalid")}
    assert accepted | refused == {path.name for path in files}, done.stderr[-2000:]
    return refused


def list_refused_by_check_jsonschema(home: Path, schema: str, files: Sequence[Path]) -> set[str]:
    """The names of ``files`` that check-jsonschema refuses."""
    options = ["--output-format", "json", "--schemafile", str(SCHEMAS / f"{schema}.json")]
    done = run_offline(home, find_tool(CHECK_JSONSCHEMA), *options, *(path.name for path in files))
    report = json.loads(done.stdout)
    assert report.get("parse_errors", []) == [], done.stdout[-2000:]
    return {error["filename"] for error in report["errors"]}


def test_ajv_compiles_each_schema_in_strict_mode_with_the_annotations_that_the_page_lists(tmp_path: Path) -> None:
    find_tool(MODULES / "ajv")
    files = [str(SCHEMAS / f"{name}.json") for name in NAMES]
    asked = json.dumps({"files": files, "annotations": list(MEANINGS)})
    done = run_offline(tmp_path, "node", "-e", COMPILE, stdin=asked)
    assert (done.stdout, done.stderr) == ("{}\n", "")


def test_check_jsonschema_takes_each_schema_as_one(tmp_path: Path) -> None:
    files = [SCHEMAS / f"{name}.json" for name in NAMES]
    done = run_offline(tmp_path, find_tool(CHECK_JSONSCHEMA), "--check-metaschema", *files)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("schema", [*SCHEMA_NAMES, "manifest"])
def test_ajv_and_check_jsonschema_refuse_what_validate_refuses(tmp_path: Path, schema: str) -> None:
    valid, wrong = write_documents(tmp_path, schema)
    assert valid
    expected = {path.name for path in wrong}
    assert list_refused_by_ajv(tmp_path, schema, [*valid, *wrong]) == expected
    assert list_refused_by_check_jsonschema(tmp_path, schema, [*valid, *wrong]) == expected


def test_the_commands_of_the_page_check_files_of_the_example() -> None:
    lines = (ROOT / "docs/schemas.md").read_text().splitlines()
    commands = [line.split() for line in lines if line.startswith(("    check-jsonschema ", "    ajv "))]
    programs = {"check-jsonschema": CHECK_JSONSCHEMA, "ajv": MODULES / ".bin/ajv"}
    assert {words[0] for words in commands} == programs.keys()
    for program, *words in commands:
        named = [word.replace("manifests/", "examples/repo/") for word in words]
        done = subprocess.run(
            [find_tool(programs[program]), *named], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
