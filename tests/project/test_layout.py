"""The layout of the repository, and the files that are shipped."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

from reconciler.documents.schema.loader import SCHEMA_NAMES, find_shipped_path
from tests.project.tree import ROOT, listed

TOP = {
    ".ci",
    ".gitignore",
    ".pre-commit-hooks.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "docs",
    "examples",
    "pyproject.toml",
    "reconciler",
    "schemas",
    "systemd",
    "tests",
}


def test_nothing_new_lies_at_the_top() -> None:
    assert {path.split("/")[0] for path in listed()} <= TOP


def test_examples_are_four_repositories_what_checks_one_and_the_daemon_in_a_cluster() -> None:
    assert {path.split("/")[1] for path in listed("examples")} == {"ci", "compose", "k8s", "kubernetes", "repo", "web"}


def test_every_schema_file_is_known_by_name() -> None:
    assert {path.stem for path in (ROOT / "schemas").glob("*.json")} - set(SCHEMA_NAMES) <= {
        "catalog",
        "common",
        "manifest",
    }


def test_the_example_is_found_from_the_checkout() -> None:
    assert find_shipped_path("examples/repo") == ROOT / "examples/repo"


def test_scripts_can_be_run() -> None:
    for script in (".ci/run", "tests/setup-debian.sh"):
        assert os.access(ROOT / script, os.X_OK), script
        assert subprocess.run(["bash", "-n", str(ROOT / script)], check=False).returncode == 0


def test_a_shell_reads_what_dpkg_runs() -> None:
    for script in ("preinst", "postinst", "prerm", "postrm"):
        assert subprocess.run(["sh", "-n", ROOT / ".ci/release/debian" / script], check=False).returncode == 0, script


def test_no_test_is_skipped_in_ci_for_what_the_machine_lacks() -> None:
    home, itself = "tests/support/programs.py", "tests/project/test_layout.py"
    used = [path for path in listed("tests/*.py") if "mark.skipif(" in (ROOT / path).read_text()]
    assert set(used) == {home, itself}, "use skip_unless, which fails in CI"


def test_ci_promises_that_nothing_is_missing_and_runs_make_test(tmp_path: Path) -> None:
    fake = tmp_path / "make"
    fake.write_text('#!/bin/sh\necho "CI=$CI make $*"\n')
    fake.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    answer = subprocess.run([ROOT / ".ci/run"], env=environment, cwd="/", check=True, capture_output=True, text=True)
    targets = ("test", "test-packaging", "test-page", "test-forges", "test-cluster")
    assert answer.stdout.splitlines() == [f"CI=true make {target}" for target in targets]


def test_the_changelog_speaks_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
