"""Nothing in this repository installs a program of an index by a name of ours: on indexes, the names are not ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.project.test_pre_commit import hooks
from tests.project.tree import ROOT
from tests.support.git import git
from tests.support.trust import machine_environ

CI = ROOT / "examples" / "ci"
OURS = r"(?:gitops-)?reconciler|docker-credential-platform"
"""Names that are ours here, and on no index: whoever registers one there decides what is installed."""
INSTALL = re.compile(
    rf"""\b(?: pip[\d.]*\s+(?:install|download|wheel) | pipx\s+(?:install|run|upgrade|inject) | uvx
        | uv\s+(?:add|tool\s+(?:install|run|upgrade)|pip\s+install|run\s+--with)
        | npx | (?:npm|pnpm|yarn|bun)\s+(?:i|install|add|exec|dlx|x) | bunx
        | (?:apt|apt-get|aptitude|dnf|yum|apk|snap|brew|conda|gem|cargo)\s+(?:[-\w=]+\s+)*?(?:install|add) )\b
        (?:[^\n;&|]*?[\s'"])? (?:{OURS}) (?![\w@/.-]|\ @\ )""",
    re.X,
)
"""An installation that asks an index for one of these names."""
IMAGE = re.compile(
    rf"""(?:\b(?:docker|podman|nerdctl|ctr)\s+(?:image\s+)?(?:run|pull|create)\b[^\n;&|]*?\s
        | ^\s*FROM\s+ | ^\s*-?\s*image:\s+)["']?(?:{OURS})(?![\w/.-])""",
    re.X | re.M,
)
"""An image of one of these names without a registry, which is one of Docker Hub."""
ASSIGNED = re.compile(r"^\s*-?\s*[A-Z_]+\s*[:=]\s*[\"']?reconciler[\"']?\s*(?:#.*)?$", re.M)
"""A variable that holds the bare name, for an installation further down."""
LISTED = re.compile(r"^(?:dependencies|additional_dependencies|requires)\b[^\n\]]*[\"']reconciler\b", re.M)
"""A requirement on the bare name."""


def bare_installs(text: str) -> list[str]:
    """The parts of ``text`` that would install one of our names from an index, or pull it from Docker Hub."""
    return [found.group().strip() for pattern in (INSTALL, IMAGE, ASSIGNED, LISTED) for found in pattern.finditer(text)]


@pytest.mark.parametrize(
    "text",
    [
        "pip install reconciler",
        "pip3 install --quiet reconciler==0.2.2",
        'python -m pip install "reconciler>=0.1"',
        "pipx run reconciler",
        "uv tool install reconciler",
        "uvx reconciler validate .",
        "pip install reconciler[dev]",
        "pip install gitops-reconciler",
        "uv tool install 'gitops-reconciler==0.1.0'",
        "uv run --with reconciler reconciler validate .",
        "npx reconciler validate .",
        "npm install --global reconciler",
        "apt-get install --yes git gitops-reconciler",
        "sudo apt install reconciler",
        "cargo install reconciler",
        "brew install reconciler",
        "docker run --rm reconciler validate .",
        "podman pull gitops-reconciler:0.1.0",
        "FROM reconciler:0.1.0",
        "    image: reconciler",
        "  RECONCILER: reconciler # what pip installs",
        "RECONCILER='reconciler'",
        "dependencies = ['reconciler>=1']",
    ],
)
def test_an_installation_of_the_bare_name_is_found(text: str) -> None:
    assert bare_installs(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install .",
        "pip install 'gitops-reconciler @ git+https://git.example.com/reconciler.git@1f'",
        "pip install ./gitops_reconciler-0.1.0-py3-none-any.whl",
        "pipx install ./gitops_reconciler-0.1.0-py3-none-any.whl",
        "apt-get install --yes ./gitops-reconciler_0.1.0_amd64.deb",
        "apt-get install --yes git; reconciler validate .",
        "docker run --rm registry.example.com/reconciler validate .",
        "docker login reconciler.example.com",
        "    image: registry.example.com/reconciler:0.1.0",
        "pip install git+https://git.example.com/reconciler.git@1f",
        "~/.local/share/reconciler/bin/pip install --quiet .",
        "reconciler run",
        "User=reconciler",
    ],
)
def test_other_uses_of_the_name_are_not(text: str) -> None:
    assert not bare_installs(text)


@pytest.mark.packaging
def test_nothing_installs_the_bare_name_from_an_index() -> None:
    names = git(ROOT, "ls-files", "-z").split("\0")
    installs = {}
    for name in names:
        path = ROOT / name
        if name and path.is_file() and path != Path(__file__):
            installs[name] = bare_installs(path.read_text(errors="replace"))
    assert {name: parts for name, parts in installs.items() if parts} == {}


def requirements() -> dict[str, str]:
    """What the installation step of each CI example installs."""
    github = yaml.safe_load((CI / "github-actions.yaml").read_text())
    gitlab = yaml.safe_load((CI / "gitlab-ci.yaml").read_text())
    return {"github": github["env"]["RECONCILER"], "gitlab": gitlab["manifests"]["variables"]["RECONCILER"]}


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_ci_installs_a_pinned_commit_of_this_repository(forge: str) -> None:
    assert re.fullmatch(
        r"gitops-reconciler @ git\+https://git\.example\.com/\S+\.git@[0-9a-f]{40}", requirements()[forge]
    )


@pytest.mark.packaging
def test_the_requirement_of_ci_is_one_that_pip_takes(tmp_path: Path) -> None:
    requirement, _, _ = requirements()["github"].rpartition("@")
    pin = hooks(tmp_path / "reconciler.git")
    environ = {
        **machine_environ(),
        # The placeholder's host stands for this directory.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{tmp_path}/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://git.example.com/",
    }
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-deps",
        "--no-build-isolation",
        "--ignore-installed",
        f"{requirement}@{pin}",
    ]
    done = subprocess.run(pip, env=environ, capture_output=True, text=True, check=False)
    assert "Would install gitops-reconciler-" in done.stdout, done.stderr
