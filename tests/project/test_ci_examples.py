"""The workflow files under examples/ci work: their shell steps run on a real repository."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from tests.docs.shell import environment
from tests.project.tree import ROOT
from tests.support.command_sandbox import SHOP, workload
from tests.support.git import File, GitRepo, git
from tests.support.programs import tool
from tests.support.waiting import serving

CI = ROOT / "examples" / "ci"
MARK = "<!-- reconciler -->"
FILES = {name: text for name, text in SHOP.items() if name in ("shop/gvc.yaml", "shop/web.yaml", "shop/db.yaml")}
GROWN: dict[str, File] = {"deploy/shop/web.yaml": workload("web", "2")}
FAULTY: dict[str, File] = {"deploy/shop/web.yaml": workload("web").replace("standard", "standrd")}

GH = """#!/bin/sh
# Stands for GitHub's API: comments lie in comments/NUMBER, one file each.
set -eu
cd "$COMMENTS"
case "$*" in
*PATCH*) cp "$STEP/comment.md" "$(basename "$(echo "$*" | grep -o 'comments/[0-9]*')")" ;;
*POST*) cp "$STEP/comment.md" "$(($(ls | wc -l) + 1))" ;;
*) grep --files-with-matches '^<!-- reconciler -->' * || true ;;
esac
"""


def clone(path: Path, files: dict[str, File]) -> Path:
    """A work tree at the second of two commits: a shop below ``deploy``, then ``files``."""
    repo = GitRepo.create(path / "origin", {f"deploy/{name}": text for name, text in FILES.items()})
    repo.commit(files)
    git(path, "clone", "--quiet", "--no-local", str(repo.path), "clone")
    return path / "clone"


def bash(script: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """``script`` as a runner's shell runs it, with this environment's command."""
    path = f"{cwd.parent / 'bin'}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=cwd,
        env=environment(cwd, PATH=path, **environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class GitHub:
    """What the workflow does for a pull request, step by step."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.second = tree.parent / "second"
        self.comments = tree.parent / "comments"
        self.comments.mkdir()
        (tree.parent / "bin").mkdir()
        gh = tree.parent / "bin" / "gh"
        gh.write_text(GH)
        gh.chmod(0o755)
        self.workflow = yaml.safe_load((CI / "github-actions.yaml").read_text())

    def run(self) -> dict[str, subprocess.CompletedProcess[str]]:
        """How each step but the installation ends; the second job has what the first one hands over, and no more."""
        ended = self._job("validate", self.tree)
        shutil.rmtree(self.second, ignore_errors=True)
        shutil.copytree(self.tree / "result", self.second / "result")
        return ended | self._job("report", self.second)

    def _job(self, name: str, workspace: Path) -> dict[str, subprocess.CompletedProcess[str]]:
        values = {
            "BASE": git(self.tree, "rev-parse", "HEAD~1"),
            "GH_TOKEN": "none",
            "NUMBER": "7",
            "GITHUB_REPOSITORY": "acme/manifests",
            "GITHUB_STEP_SUMMARY": "summary.md",
            "COMMENTS": str(self.comments),
            "GITHUB_WORKSPACE": str(workspace),
            "STEP": str(workspace),
            **self.workflow["env"],
            "MANIFESTS": "deploy",
        }
        steps = [step for step in self.workflow["jobs"][name]["steps"] if "run" in step]
        assert {name for step in steps for name in step.get("env", {})} <= values.keys()
        assert not any("${{" in step["run"] for step in steps), "what others wrote must not become part of a script"
        return {each["name"]: bash(each["run"], workspace, **values) for each in steps if each["name"] != "Install"}


@pytest.mark.packaging
def test_a_pull_request_on_github_gets_the_plan(tmp_path: Path) -> None:
    github = GitHub(clone(tmp_path, GROWN))
    for _ in range(2):
        ended = github.run()
        assert {name: each.returncode for name, each in ended.items()} == dict.fromkeys(ended, 0), ended
    (comment,) = github.comments.iterdir()
    assert comment.read_text().startswith(f"{MARK}\n### Plan: 1 to update\n")
    assert "### Plan: 1 to update" in (github.tree / "summary.md").read_text()
    assert json.loads((github.second / "result" / "reconciler.sarif").read_text())["runs"][0]["results"] == []


@pytest.mark.packaging
def test_a_faulty_pull_request_on_github_fails_with_annotations_and_a_comment(tmp_path: Path) -> None:
    github = GitHub(clone(tmp_path, FAULTY))
    ended = github.run()
    assert {name for name, each in ended.items() if each.returncode} == {"Validate"}
    assert "::error file=deploy/shop/web.yaml,line=4,col=9,title=workload-type::" in ended["Validate"].stdout
    (result,) = json.loads((github.second / "result" / "reconciler.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "deploy/shop/web.yaml"
    (comment,) = github.comments.iterdir()
    assert comment.read_text().startswith(f"{MARK}\n### Refused: 1 error\n")


def test_a_job_that_runs_what_others_wrote_may_only_read_and_one_that_writes_runs_nothing_of_theirs() -> None:
    workflow = yaml.safe_load((CI / "github-actions.yaml").read_text())
    validate, report = (workflow["jobs"][name] for name in ("validate", "report"))
    assert workflow["permissions"] == {}
    assert validate["permissions"] == {"contents": "read"}
    assert not any("token" in str(step.get("env", {})) for step in validate["steps"])
    assert report["permissions"] == {"pull-requests": "write", "security-events": "write"}
    words = " ".join(str(step.get("run", step.get("uses"))) for step in report["steps"])
    assert not re.search(r"checkout|setup-python|\b(pip|python3?|reconciler|git|make|npm) (?!-->)", words)
    job = yaml.safe_load((CI / "gitlab-ci.yaml").read_text())
    assert "RECONCILER_TOKEN" not in str(job["manifests"]["script"] + job["manifests"]["before_script"])
    assert job["note"]["variables"] == {"GIT_STRATEGY": "none"}
    assert "pip" not in str(job["note"]["script"])


def test_every_action_is_named_by_a_commit_and_its_version() -> None:
    used = re.findall(r"uses: (.*)", (CI / "github-actions.yaml").read_text())
    assert used
    assert [each for each in used if not re.fullmatch(r"[-\w./]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_an_image_is_named_by_its_digest_or_the_file_asks_for_that() -> None:
    for name in ("ci/github-actions.yaml", "ci/gitlab-ci.yaml", "kubernetes/Containerfile"):
        text = (CI.parent / name).read_text()
        images = re.findall(r"^\s*(?:image:|FROM) (\S+)", text, re.MULTILINE)
        assert all("@sha256:" in image for image in images) or re.search(r"named by a tag[^@]*@sha256:", text), name


def test_what_is_installed_has_hashes_and_builds_with_nothing_else() -> None:
    for name in ("github-actions.yaml", "gitlab-ci.yaml"):
        installed = re.findall(r"pip install (.*)", (CI / name).read_text())
        assert [words for words in installed if "--no-deps --no-build-isolation" in words] == installed[1:]
        assert "--require-hashes" in installed[0]


class Notes(BaseHTTPRequestHandler):
    """GitLab's notes of one merge request, stored on the server."""

    def do_GET(self) -> None:
        """All notes."""
        self._answer([{"id": number, "body": body} for number, body in self._notes.items()])

    def do_POST(self) -> None:
        """One more note."""
        self._notes[len(self._notes) + 1] = self._body()
        self._answer({})

    def do_PUT(self) -> None:
        """Another text for a note."""
        self._notes[int(self.path.rpartition("/")[2])] = self._body()
        self._answer({})

    @property
    def _notes(self) -> dict[int, str]:
        notes: dict[int, str] = self.server.notes  # type: ignore[attr-defined]
        return notes

    def _body(self) -> str:
        return parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())["body"][0]

    def _answer(self, value: object) -> None:
        allowed = self.headers["PRIVATE-TOKEN"] == "token" and "/projects/3/merge_requests/7/notes" in self.path
        self.send_response(200 if allowed else 403)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def gitlab(notes: dict[int, str]) -> Iterator[str]:
    """The address of an API that keeps ``notes``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Notes)
    server.notes = notes  # type: ignore[attr-defined]
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


def run_gitlab(tree: Path, **environ: str) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """The scripts of both jobs, each in one shell as GitLab runs it; the second one has the artifacts alone."""
    jobs: dict[str, Any] = yaml.safe_load((CI / "gitlab-ci.yaml").read_text())
    values = {
        **{name: str(value) for name, value in jobs["manifests"]["variables"].items()},
        "MANIFESTS": "deploy",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": git(tree, "rev-parse", "HEAD~1"),
        "CI_COMMIT_SHA": git(tree, "rev-parse", "HEAD"),
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "7",
    }
    checked = bash("\n".join(jobs["manifests"]["script"]), tree, **values)
    second = tree.parent / "second"
    second.mkdir(exist_ok=True)
    for name in jobs["manifests"]["artifacts"]["paths"]:
        shutil.copy(tree / name, second / name)
    return checked, bash("\n".join(jobs["note"]["script"]), second, **values, **environ)


@pytest.mark.packaging
@pytest.mark.parametrize(
    ("files", "code", "message"), [(GROWN, 0, "Plan: 1 to update"), (FAULTY, 1, "Refused: 1 error")]
)
def test_a_merge_request_on_gitlab_gets_the_plan(
    tmp_path: Path, files: dict[str, File], code: int, message: str
) -> None:
    tool("curl", "curl")
    tree = clone(tmp_path, files)
    notes = {1: "Looks good to me"}
    with gitlab(notes) as api:
        for _ in range(2):
            ended, noted = run_gitlab(tree, CI_API_V4_URL=api, RECONCILER_TOKEN="token")
            assert ended.returncode == code, ended.stderr
            assert noted.returncode == 0, noted.stderr
    assert list(notes) == [1, 2]
    assert notes[2].startswith(f"{MARK}\n### {message}")
    report = json.loads((tree / "gl-code-quality-report.json").read_text())
    assert [(each["check_name"], each["location"]) for each in report] == [
        ("workload-type", {"path": "deploy/shop/web.yaml", "lines": {"begin": 4}})
    ] * code
    assert ("[workload-type]" in ended.stdout) == bool(code)


@pytest.mark.packaging
def test_a_merge_request_on_gitlab_needs_no_token_to_be_checked(tmp_path: Path) -> None:
    tree = clone(tmp_path, GROWN)
    ended, noted = run_gitlab(tree)
    assert (ended.returncode, noted.returncode) == (0, 0), ended.stderr
    assert "no findings in" in ended.stdout


@pytest.mark.parametrize("name", ["github-actions.yaml", "gitlab-ci.yaml"])
def test_commands_of_the_examples_use_options_that_exist(name: str) -> None:
    commands = set(re.findall(r"^\s*(?:- |run: )?reconciler (\w+)", (CI / name).read_text(), re.M))
    assert commands == {"validate", "diff"}
