"""Command lines in the shapes of public scripts and CI files, each against a real daemon."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.documents.reader import parse_documents
from reconciler.platform_cli.commands import manifests
from tests.api.conftest import FILES
from tests.platform_cli.kit import harness
from tests.support.cases import CASES
from tests.support.pace import slowness

TABLE = CASES / "platform-scripts.yaml"
LEAST = 100
CPU_SECONDS = 3.0


def table() -> dict[str, Any]:
    """The files and the lines of the table."""
    reading = parse_documents(TABLE.read_bytes(), text_fields=frozenset())
    assert not reading.faults, reading.faults
    found: dict[str, Any] = reading.documents[0].value
    return found


def test_lines_of_public_scripts_run_or_end_with_what_to_do_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines run in their order, as in a script, in one process: its start is not what they show."""
    monkeypatch.setattr(manifests, "READY_PAUSE", 0.05)
    before, wrong = slowness(), []
    began = time.process_time()
    cases = table()
    with harness(tmp_path, FILES) as shop:
        for name, text in cases["files"].items():
            (shop.home / name).parent.mkdir(exist_ok=True)
            (shop.home / name).write_text(text)
        # The account of this host is a superuser, so the tokens of the profiles are not sent.
        for line in cases["lines"]:
            shop.relay.requests.clear()
            done = shop.run(*shlex.split(line["run"]), text=line.get("input", ""), environ={"PLATFORM_TOKEN": ""})
            if any(not each.startswith("GET ") for each in shop.relay.requests):
                shop.wait_until_applied()
            if fault := _fault(line, done.returncode, done.stdout, done.stderr):
                wrong.append(f"{line['run']}: {fault}")
    assert wrong == [], "\n".join(wrong)
    spent = time.process_time() - began
    assert spent / ((before + slowness()) / 2) < CPU_SECONDS


def _fault(line: Mapping[str, Any], code: int, out: str, err: str) -> str:
    """What is wrong with the result of ``line``; "" if nothing is."""
    expected = line.get("exit", 0)
    if code != expected:
        return f"it ended with {code}: {out}{err}"
    if expected == 0:
        return "" if line.get("shows", "") in out else f"it printed {out!r}"
    lines = [each for each in err.splitlines() if re.match("(?i)error: ", each)]
    return "" if len(lines) == 1 and line["shows"] in lines[0] else f"it says {err!r}"


def test_the_table_has_a_hundred_different_lines() -> None:
    lines = [line["run"] for line in table()["lines"]]
    assert len({*lines}) == len(lines) >= LEAST
    assert all(line.get("shows") for line in table()["lines"] if line.get("exit"))
