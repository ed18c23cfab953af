"""`reconciler init` makes a repository that works as it is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from reconciler.documents.schema.loader import find_shipped_path
from tests.support.command_sandbox import here
from tests.support.records import reconciler


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


def test_a_new_repository_holds_the_example_in_one_commit(tmp_path: Path) -> None:
    result = reconciler("init", "manifests", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "reconciler validate manifests" in result.stdout
    assert str(tmp_path / "manifests") in result.stdout
    repository = tmp_path / "manifests"
    assert git(repository, "log", "--format=%s", "main") == "Begin with the example system"
    assert git(repository, "status", "--porcelain") == ""
    committed = set(git(repository, "ls-files").splitlines())
    example = find_shipped_path("examples/repo")
    schemas = {f".schemas/{path.name}" for path in find_shipped_path("schemas").iterdir()}
    assert committed == {str(path.relative_to(example)) for path in example.rglob("*") if path.is_file()} | schemas


def test_every_document_names_the_schema_that_lies_beside_it_and_is_valid(tmp_path: Path) -> None:
    assert reconciler("init", "manifests", cwd=tmp_path).returncode == 0
    for path in (tmp_path / "manifests").rglob("*.yaml"):
        text = path.read_text()
        named = re.findall(r"^# yaml-language-server: \$schema=(.*)$", text, re.M)
        assert len(named) == len(re.findall("^kind: ", text, re.M)), path
        assert {(path.parent / each).resolve() for each in named} == {tmp_path / "manifests/.schemas/manifest.json"}
    result = reconciler("validate", "manifests", cwd=tmp_path)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("template", ["web", "compose", "kubernetes"])
def test_the_other_examples_have_no_findings_and_are_committed(tmp_path: Path, template: str) -> None:
    result = here("init", "page", "--template", template, cwd=tmp_path)
    assert (result.code, "    local: {engine: host}" in result.out) == (0, True), result
    assert here("validate", "page", cwd=tmp_path).out == "no findings in 2 documents, 2 resources\n"
    assert git(tmp_path / "page", "status", "--porcelain") == ""


def test_a_user_whom_git_does_not_know_can_begin_too(tmp_path: Path) -> None:
    unknown = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "user.useConfigOnly",
        "GIT_CONFIG_VALUE_0": "true",
    }
    assert reconciler("init", "manifests", cwd=tmp_path, **unknown).returncode == 0
    assert git(tmp_path / "manifests", "log", "--format=%an") == "reconciler"


def test_an_empty_directory_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert reconciler("init", "empty", cwd=tmp_path).returncode == 0


def test_a_directory_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep me")
    result = reconciler("init", "mine", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr == "error: mine is not empty; name an empty or a new directory\n"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]


def test_a_place_where_no_directory_can_be_is_refused_like_one_with_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = reconciler("init", "file", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("error: file cannot be written")
