"""Cases as YAML files: what a user could have written, and what shall come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = Path(__file__).parents[1] / "cases"


def cases(path: str) -> list[Any]:
    """The cases in the file ``path`` below tests/cases, each under its name, for ``parametrize``."""
    listed = yaml.load((CASES / path).read_bytes(), yaml.CSafeLoader)
    return [pytest.param(case, id=case["name"]) for case in listed]
