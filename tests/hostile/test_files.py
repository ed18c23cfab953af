"""Every hostile file through the check and every format: no traceback, in under a second, in bounded memory."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.manifests.normalize import ManifestContext
from reconciler.pipeline.externals import ExternalResources
from reconciler.render.excerpt import Excerpts
from reconciler.render.findings import findings_document, findings_text, markdown_findings
from reconciler.render.forges import build_report, workflow_commands
from reconciler.render.layout import as_json
from reconciler.render.sarif import build_sarif_run
from reconciler.review.folder import FolderCheck, check_folder
from reconciler.rulebook import load_rulebook
from tests.hostile.corpus import HUGE, KIB, MIB, NEIGHBOURS, PIECES, WIDE, repeated
from tests.support.examples import thin_out
from tests.support.pace import in_time
from tests.support.sops import keyring

SECONDS = 1.0
MEMORY = 200 * MIB
DIALECT = ManifestContext("acme", secret_key=b"k" * 32, keyring=keyring("identity"), secrets="any")
AROUND = ExternalResources(external=frozenset({"gvc/shop"}), settings_unknown=True)

DEAR = {
    "many wide documents with sops",
    "many documents of many values",
    "many tags",
    "one long JSON",
    "many encrypted documents",
    "many wide documents",
    "deep and wide",
    "a long dictionary",
    "many bindings",
    "many unknown fields",
    "a wide list",
    "many wrong workloads of an unclear GVC",
    "several deep and wide documents",
    "many keys",
    "one key again and again",
    "many ports",
    "many arguments",
    "many wrong documents",
    "deep and wide below sops",
    "many variables from secrets",
    "many links that nearly lead somewhere",
    "many containers",
    "many workloads of an unclear GVC",
    "many variables of one name",
    "a long query",
    "many wrong types",
    "many anchors",
    "many variables that name others",
}
"""Bombs that take longest and are like another one: every run of the tests leaves them to the slow suites."""
SHORT_HUGE = ("a hundred megabytes", "just within the size of a file", "fifteen megabytes of strings of one pair")
SHORT_NEIGHBOURS = (
    "many faulty policies",
    "circles whose names stand in reverse order",
    "circles of all with all",
    "a query of many stars",
    "missing members of groups",
)

FORMATS: dict[str, Callable[[FolderCheck], str]] = {
    "text": lambda one: findings_text(one.findings, Excerpts(one.read)),
    "json": lambda one: as_json(findings_document(one.findings, one.documents, one.resources)).decode(),
    "github": lambda one: workflow_commands(one.findings),
    "gitlab": lambda one: msgspec.json.encode(build_report(one.findings)).decode(),
    "sarif": lambda one: msgspec.json.encode(build_sarif_run(one.findings)).decode(),
    "markdown": lambda one: markdown_findings(one.findings, "Refused"),
}


@contextmanager
def bounded_memory(more: int) -> Iterator[None]:
    """MemoryError where the process takes ``more`` bytes than it has now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def sample(names: Iterable[str], short: Collection[str]) -> list[Any]:
    """``names`` as parameters of a test, slow but for the ``short`` ones."""
    return [pytest.param(name, marks=[] if name in short else [pytest.mark.slow]) for name in names]


def checked(path: Path, dialect: ManifestContext = DIALECT) -> FolderCheck:
    """``path`` checked and shown in every format, each in time."""
    result, spent = in_time(lambda: check_folder(path, dialect, AROUND), SECONDS)
    unknown = {finding.rule for finding in result.findings} - load_rulebook().keys()
    assert not unknown
    for name, shown in FORMATS.items():
        text, _ = in_time(partial(shown, result), SECONDS, spent)
        assert len(text) < MIB, name
    return result


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is imported or compiled once does not count."""
    path = tmp_path_factory.mktemp("warm") / "x.yaml"
    path.write_text("kind: workload\nname: a\nspec: {containers: [{name: 1}]}\n---\na: &a\n")
    checked(path)


@pytest.mark.parametrize("name", [*thin_out(name for name in WIDE if name not in DEAR), *sample(DEAR, ())])
def test_a_bomb_is_checked_and_shown_in_time(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(WIDE[name]())
    with bounded_memory(MEMORY):
        checked(path)


@pytest.mark.parametrize("name", sample(NEIGHBOURS, SHORT_NEIGHBOURS))
def test_resources_that_refer_to_each_other_are_checked_and_shown_in_time(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(NEIGHBOURS[name]())
    with bounded_memory(MEMORY):
        checked(path, ManifestContext("acme", secret_key=b"k" * 32))


@pytest.mark.parametrize("name", sample(HUGE, SHORT_HUGE))
def test_a_huge_file_is_checked_and_shown_in_time(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(HUGE[name]())
    with bounded_memory(MEMORY):
        checked(path)


@pytest.mark.parametrize("piece", thin_out(PIECES))
def test_whatever_is_repeated_is_checked_and_shown_in_time(piece: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for _, raw in repeated(piece, 10 * KIB):
        path.write_bytes(raw)
        checked(path)


@pytest.mark.slow
@pytest.mark.parametrize("piece", thin_out(PIECES))
def test_whatever_is_repeated_a_million_times_is_checked_and_shown_in_time(piece: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for _, raw in repeated(piece, MIB):
        path.write_bytes(raw)
        with bounded_memory(MEMORY):
            checked(path)


def test_a_finding_about_size_shows_no_line(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"kind: gvc\nname: x\nspec: " + b"[" * 300_000)
    found = check_folder(path, DIALECT, AROUND)
    assert [finding.rule for finding in found.findings] == ["too-deep"]
    assert not re.search(r"\^", FORMATS["text"](found))
