"""A wheel built from the tree works in an empty environment, far from the tree."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from tests.project.tree import ROOT
from tests.support.once import made_once
from tests.support.trust import machine_environ

pytestmark = pytest.mark.packaging

CONSTRAINTS = ROOT / "examples" / "ci" / "constraints.txt"
PINS = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", CONSTRAINTS.read_text(), re.MULTILINE))
SHIPPED = """
from reconciler.documents.schema.loader import SCHEMA_NAMES, load_schema, find_shipped_path
for name in SCHEMA_NAMES:
    assert load_schema(name), name
from reconciler.engines.host.runtimes.process.spawn import build_wrapper_script
assert "exec" in build_wrapper_script()
assert (find_shipped_path("systemd") / "reconciler.service").exists()
print(load_schema("workload")["title"])
print(find_shipped_path("examples/repo"))
example = find_shipped_path("examples/repo")
print(*sorted(str(path.relative_to(example)) for path in example.rglob("*.*")))
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


def _install(folder: Path) -> None:
    """Build the wheel and install it in an environment of its own, both below ``folder``."""
    outside(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", ROOT, cwd=folder)
    venv.create(folder / "venv", with_pip=False)
    (wheel,) = (folder / "dist").glob("*.whl")
    python = folder / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-compile"]
    outside(*pip, "--require-hashes", "--only-binary", ":all:", "--requirement", CONSTRAINTS, cwd=folder)
    outside(*pip, "--no-deps", wheel, cwd=folder)
    outside(sys.executable, "-m", "pip", "--quiet", "--python", python, "check", cwd=folder)


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


def test_the_wheel_lists_its_dependencies_with_their_versions(installed: Path) -> None:
    (path,) = installed.parent.glob("lib/*/site-packages/gitops_reconciler-*.dist-info/sboms/*")
    bill = json.loads(path.read_text())
    assert path.name == "gitops-reconciler.cdx.json"
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert {component["name"]: component["version"] for component in bill["components"]} == PINS
    (own,) = bill["dependencies"]
    assert own["ref"] == bill["metadata"]["component"]["purl"] == "pkg:pypi/gitops-reconciler@0.1.0"
    assert {component.removeprefix("pkg:pypi/").partition("@")[0] for component in own["dependsOn"]} == set(required())


def test_two_wheels_of_one_tree_are_equal(installed: Path, tmp_path: Path) -> None:
    (first,) = (installed.parents[1] / "dist").glob("*.whl")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT]
    former = os.umask(0o077)
    try:
        outside(*command, cwd=tmp_path)
    finally:
        os.umask(former)
    (second,) = tmp_path.glob("*.whl")
    assert digest(first) == digest(second)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def required() -> dict[str, str]:
    """The names of the dependencies, as indexes write them, and their lower bounds."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pairs = (each.lower().split(">=") for each in named)
    return {re.sub(r"[-_.]+", "-", name): bound.partition(",")[0] for name, bound in pairs}


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)]


def test_constraints_name_each_dependency_with_hashes_and_no_index() -> None:
    text = CONSTRAINTS.read_text()
    assert {name: bound for name, bound in required().items() if numbers(PINS[name]) < numbers(bound)} == {}
    assert "hatchling" in PINS
    body = [line for line in text.splitlines() if line and not line.startswith("#")]
    pin, hashed = r"[a-z0-9-]+==[^\s/:]+ \\", r"    --hash=sha256:[0-9a-f]{64}( \\)?"
    assert [line for line in body if not re.fullmatch(f"{pin}|{hashed}", line)] == []
    assert not re.search(r"https?:|--(extra-)?index|--find-links|trusted", text)
