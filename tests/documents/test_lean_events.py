"""The parser's events: lean in decoding processes where PyYAML lets them be, and its own everywhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from reconciler.documents import events

READ = """
import yaml._yaml
{change}
from reconciler.documents.lean_events import install_lean_events
print(install_lean_events())
from reconciler.documents import events
from reconciler.documents.reader import parse_documents
print(events.ScalarEvent.__module__, parse_documents(b"kind: gvc\\nname: shop\\nspec: {{a: 1}}\\n").documents[0].value)
"""
VALUE = "{'kind': 'gvc', 'name': 'shop', 'spec': {'a': 1}}"


def run(code: str) -> list[str]:
    """The lines that a fresh process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ("", ["True", f"reconciler.documents.lean_events {VALUE}"]),
        ("import reconciler.documents.events", ["False", f"yaml.events {VALUE}"]),
        ("del yaml._yaml.SequenceEndEvent", ["False", f"yaml.events {VALUE}"]),
    ],
)
def test_a_parser_takes_the_lean_classes_or_keeps_its_own(change: str, lines: list[str]) -> None:
    assert run(READ.format(change=change)) == lines


def test_importing_what_a_worker_is_imports_nothing_that_takes_the_classes_of_events() -> None:
    code = "import sys, reconciler.decode.worker; print('reconciler.documents.events' in sys.modules)"
    assert run(code) == ["False"]


def test_every_other_process_leaves_pyyaml_as_it_is() -> None:
    assert events.ScalarEvent is yaml.ScalarEvent
    found = list(yaml.parse("a: [1]", Loader=yaml.CSafeLoader))
    assert all(type(event).__module__ == "yaml.events" for event in found)
