"""Test suites of parsers, read alone, behind an encrypted document, and all in one directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.documents.event_positions import find_scalar_spans
from reconciler.documents.locator import Locator
from reconciler.documents.reader import parse_documents
from reconciler.manifests.decoder import decode_manifests
from reconciler.review.folder import check_folder
from tests.hostile.suites import json_cases, need_suites, yaml_cases
from tests.hostile.test_files import AROUND, DIALECT, FORMATS, SECONDS
from tests.support.pace import in_time

SUITES: dict[str, Callable[[], list[tuple[str, bytes]]]] = {"json": json_cases, "yaml": yaml_cases}
HEADS = (b"", b'sops: {mac: "", lastmodified: ""}\n---\n', b"kind: secret\nname: a\nsops: {}\ndata: ")


@pytest.fixture(autouse=True)
def _suites() -> None:
    need_suites()


def _read_by_all(raw: bytes) -> None:
    decode_manifests(raw, DIALECT)
    locator = Locator(raw)
    for document in parse_documents(raw).documents:
        locator.of(document.index).value(("a", 0))
    find_scalar_spans(raw)


@pytest.mark.parametrize("suite", SUITES)
def test_every_case_is_read_in_time_by_every_reader(suite: str) -> None:
    cases = SUITES[suite]()
    assert len(cases) > 200
    for name, raw in cases:
        for head in HEADS:
            try:
                in_time(lambda raw=head + raw: _read_by_all(raw), SECONDS)  # type: ignore[misc]
            except Exception as error:
                raise AssertionError(f"{name} {head!r}: {raw[:200]!r}") from error


@pytest.mark.parametrize("suite", SUITES)
def test_all_cases_of_a_suite_are_checked_and_shown(suite: str, tmp_path: Path) -> None:
    for number, (_, raw) in enumerate(SUITES[suite]()):
        (tmp_path / f"{number:04d}.yaml").write_bytes(raw)
    check = check_folder(tmp_path, DIALECT, AROUND)
    # The root of a case is no manifest: each file has at least one finding.
    assert check.findings
    for shown in FORMATS.values():
        assert "Traceback" not in shown(check)


@pytest.mark.parametrize("suite", SUITES)
def test_json_that_every_reader_takes_means_the_same_to_ours(suite: str) -> None:
    import json

    for name, raw in SUITES[suite]():
        if not name.startswith("y_"):
            continue
        reading = parse_documents(raw)
        if not reading.faults and reading.documents:
            assert reading.documents[0].value == json.loads(raw), name
