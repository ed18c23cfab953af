"""The hook for pre-commit, installed and run by pre-commit itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pre_commit.clientlib import load_manifest

from tests.project.tree import ROOT
from tests.support.command_sandbox import SHOP, here, workload
from tests.support.git import ENVIRONMENT, GitRepo, git
from tests.support.trust import machine_environ

NEEDED = (
    ".ci",
    ".pre-commit-hooks.yaml",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "examples",
    "reconciler",
    "schemas",
    "docs/rules.md",
    "systemd",
)
"""What the hook's repository must hold for a wheel to be built of it."""

NO_REGISTRY = ("No matching distribution", "Failed to establish a new connection", "Could not find a version")


def hooks(path: Path) -> str:
    """A repository with the hook as it is in this tree; its commit."""
    for name in NEEDED:
        source, target = ROOT / name, path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return committed(path)


def committed(path: Path) -> str:
    """A first commit of everything at ``path``."""
    git(path, "init", "--quiet", "--initial-branch=main")
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "--message", "Begin")
    return git(path, "rev-parse", "HEAD")


def pre_commit(folder: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``pre-commit WORDS`` in ``folder``, keeping what it installs below ``home``."""
    hidden = ("GIT_", "PYTHON", "VIRTUAL_ENV", "RECONCILER_")
    visible = {name: value for name, value in machine_environ().items() if not name.startswith(hidden)}
    environ = {
        **visible,
        **ENVIRONMENT,
        "PRE_COMMIT_HOME": str(home),
        "HOME": os.environ.get("HOME", "/nonexistent"),
        "PATH": os.environ["PATH"],
    }
    command = [sys.executable, "-m", "pre_commit", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)


def installed(place: Path, home: Path) -> None:
    """Let pre-commit install the hook; without a registry in reach the test skips, in CI it fails."""
    ended = pre_commit(place, home, "install-hooks")
    if ended.returncode and any(sign in ended.stdout for sign in NO_REGISTRY) and not os.environ.get("CI"):
        pytest.skip("pip reaches no registry to install the hook from")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_hook_is_one_that_pre_commit_takes_and_its_command_works(tmp_path: Path) -> None:
    (hook,) = load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    assert (hook["id"], hook["language"], hook["pass_filenames"]) == ("reconciler-validate", "python", False)
    for name in ("shop/gvc.yaml", "shop/web.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(str(SHOP[name]))
    program, *words = [*hook["entry"].split(), *hook["args"]]
    assert program == "reconciler"
    assert here(*words, cwd=tmp_path).code == 0
    (tmp_path / "shop/web.yaml").write_text(workload("web").replace("standard", "standrd"))
    refused = here(*words, cwd=tmp_path)
    assert refused.code == 1
    assert "shop/web.yaml:4:9: error: `standrd` is not allowed here" in refused.out


@pytest.mark.slow
def test_the_hook_checks_the_repository_as_a_whole(tmp_path: Path) -> None:
    revision = hooks(tmp_path / "hooks")
    folder = GitRepo.create(tmp_path / "place", bare=False).path
    for name in ("shop/gvc.yaml", "shop/web.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(str(SHOP[name]))
    entry = f"repos:\n- repo: {tmp_path / 'hooks'}\n  rev: {revision}\n  hooks: [{{id: reconciler-validate}}]\n"
    (folder / ".pre-commit-config.yaml").write_text(entry)
    committed(folder)
    installed(folder, tmp_path / "home")
    assert pre_commit(folder, tmp_path / "home", "run", "--all-files").returncode == 0

    (folder / "shop/web.yaml").write_text(workload("web").replace("standard", "standrd"))
    git(folder, "add", "shop/web.yaml")
    refused = pre_commit(folder, tmp_path / "home", "run")
    assert refused.returncode == 1
    assert "reconciler validate" in refused.stdout
    assert "shop/web.yaml:4:9: error: `standrd` is not allowed here" in refused.stdout
    assert "4 |   type: standrd" in refused.stdout

    (folder / "notes.txt").write_text("no manifest")
    git(folder, "reset", "--quiet", "--hard")
    (folder / "notes.txt").write_text("no manifest")
    git(folder, "add", "notes.txt")
    passed = pre_commit(folder, tmp_path / "home", "run")
    assert (passed.returncode, "Passed" in passed.stdout) == (0, True)

    git(folder, "reset", "--quiet", "--hard")
    git(folder, "rm", "--quiet", "shop/gvc.yaml")
    deleting = pre_commit(folder, tmp_path / "home", "run")
    assert deleting.returncode == 1, "a commit that only deletes is checked"
    assert "shop/web.yaml:1:1: error: " in deleting.stdout
    assert "[gvc-missing]" in deleting.stdout
