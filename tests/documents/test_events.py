"""The parser's events: lean where PyYAML lets them be, and its own where not."""

from __future__ import annotations

import subprocess
import sys

from reconciler.documents import events

READ = """
import yaml._yaml
{change}
from reconciler.documents.events import IS_LEAN
from reconciler.documents.reader import read
print(IS_LEAN, read(b"kind: gvc\\nname: shop\\nspec: {{a: 1}}\\n").documents[0].value)
"""


def read_where(change: str) -> str:
    """What a fresh process says that has changed PyYAML first."""
    command = [sys.executable, "-c", READ.format(change=change)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_installed_parser_takes_the_lean_classes() -> None:
    assert events.IS_LEAN


def test_a_parser_that_knows_its_events_by_other_names_is_left_alone() -> None:
    value = "{'kind': 'gvc', 'name': 'shop', 'spec': {'a': 1}}"
    assert read_where("") == f"True {value}"
    assert read_where("del yaml._yaml.SequenceEndEvent") == f"False {value}"
