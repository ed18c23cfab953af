"""A wheel built from the tree works in an empty environment, far from the tree."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.project.tree import ROOT
from tests.support.once import made_once
from tests.support.trust import machine_environ

SHIPPED = """
from reconciler.documents.schema.loader import SCHEMA_NAMES, load_schema, shipped
for name in SCHEMA_NAMES:
    assert load_schema(name), name
from reconciler.engines.host.runtimes.process.spawn import script
assert "exec" in script()
print(load_schema("workload")["title"])
print(shipped("examples/repo"))
print(*sorted(str(path.relative_to(shipped("examples/repo"))) for path in shipped("examples/repo").rglob("*.*")))
"""


def outside(*command: object, cwd: Path) -> str:
    """What ``command`` prints, run where neither the tree nor this environment is in reach."""
    environment = {
        name: value for name, value in machine_environ().items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    answer = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment that holds nothing but the wheel and what it asks for."""
    return made_once(tmp_path_factory, "wheel", _install) / "venv/bin"


def _install(place: Path) -> None:
    """Build the wheel and install it in an environment of its own, both below ``place``."""
    outside(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place / "dist", ROOT, cwd=place)
    venv.create(place / "venv", with_pip=False)
    (wheel,) = (place / "dist").glob("*.whl")
    python = place / "venv/bin/python"
    outside(sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-compile", wheel, cwd=place)


def test_the_command_answers_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    assert "Usage: reconciler" in outside(installed / "reconciler", "--help", cwd=tmp_path)


def test_schemas_and_the_example_come_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    title, place, names = outside(installed / "python", "-c", SHIPPED, cwd=tmp_path).splitlines()
    assert title == "Workload"
    assert Path(place).is_relative_to(installed.parent)
    example = ROOT / "examples/repo"
    assert names.split() == sorted(str(path.relative_to(example)) for path in example.rglob("*.*"))


def test_rules_are_explained_with_their_examples_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    result = outside(installed / "reconciler", "explain", "duplicate-key", cwd=tmp_path)
    assert result == (ROOT / "tests/cases/cli/explain.txt").read_text()


def test_the_wheel_declares_types_and_license(installed: Path) -> None:
    (metadata,) = installed.parent.glob("lib/*/site-packages/gitops_reconciler-*.dist-info")
    assert "License-Expression: Apache-2.0" in (metadata / "METADATA").read_text()
    assert (metadata / "licenses/LICENSE").exists()
    assert (metadata / "../reconciler/py.typed").exists()
