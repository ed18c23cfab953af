"""No finding of a secret's manifest, in any form, contains its values, however the manifest is written or broken."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from reconciler.render.excerpt import Excerpts
from reconciler.render.findings import findings_document, findings_text, markdown_findings
from reconciler.render.forges import workflow_commands
from reconciler.render.sarif import build_sarif_run
from reconciler.review.folder import check_folder
from tests.support.cases import cases
from tests.support.examples import examples
from tests.support.rule_cases import AROUND, DIALECT

CANARY = "canary"
SEEDS = examples(150)
"""Broken forms of each shape."""

JUNK = (
    "\t",
    "'",
    '"',
    "{",
    "]",
    ":",
    " ",
    "\n",
    "- ",
    "# ",
    "&a ",
    "*b ",
    "!!int ",
    "---\n",
    "\x07",
    "é",
    "| ",
    ": yes\n",
)


def broken(text: str, seed: int) -> bytes:
    """``text`` after one to three slips of the hand; where lines go, the kind and the separators stay."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(text))
        lines = text.splitlines(keepends=True)
        row = chance.randrange(len(lines))
        edits = [
            text[:at] + chance.choice(JUNK) + text[at:],
            text[:at],
            "".join(line for number, line in enumerate(lines) if number != row or "kind" in line or "---" in line),
            "".join([*lines[:row], lines[row], *lines[row:]]),
            "".join(f"  {line}" if number == row else line for number, line in enumerate(lines)),
            "".join(line.lstrip() if number == row else line for number, line in enumerate(lines)),
            text.replace("data", chance.choice(["dta", "Data", "spec", "data:"]), 1),
            text.replace("secret", chance.choice(["secert", "Secret", "secrets", "[secret]", ""]), 1),
            text.replace("\n", "\r\n"),
        ]
        text = chance.choice(edits) or text
    return text.encode()


def everything(path: Path) -> str:
    """Every form of what is found in the files at ``path``, one after the other."""
    checked = check_folder(path, DIALECT, AROUND)
    findings = checked.findings
    documents = [findings_document(findings, checked.documents, checked.resources), build_sarif_run(findings)]
    return "\n".join(
        [
            findings_text(findings, Excerpts(checked.read)),
            findings_text(findings, Excerpts(checked.read), colour=True),
            markdown_findings(findings, "Refused"),
            workflow_commands(findings),
            *(msgspec.json.encode(document).decode() for document in documents),
        ]
    )


@pytest.mark.examples
@pytest.mark.parametrize("case", cases("masking/secrets.yaml"))
def test_no_form_shows_a_value_of_a_secret_that_is_broken(tmp_path: Path, case: dict[str, str]) -> None:
    text = case["file"]
    assert CANARY in text
    file = tmp_path / "secret.yaml"
    failures = 0
    for seed in range(SEEDS):
        raw = broken(text, seed)
        file.write_bytes(raw)
        output = everything(tmp_path)
        assert CANARY not in output, raw.decode()
        failures += "error" in output
    assert failures > SEEDS / 3, "else this tests nothing"
