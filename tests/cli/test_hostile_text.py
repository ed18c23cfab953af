"""Texts of a repository that would control a terminal, a review or a job are escaped in all output."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from reconciler.printable import UNSAFE
from tests.support.command_sandbox import CommandSandbox, workload

BAD = re.compile(rf"[\x00-\x08\x0b-\x1f{UNSAFE}]")
VALUE = "a\x9b2Jb\u202ec\u2066d\re"
HOSTILE = workload("web") + f'      env: [{{name: A, value: {json.dumps(VALUE)}}}]\ndescription: "\\u202e\\u009b8m"\n'
BRANCH = "x`<img/src=q>@octocat"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A shop with a workload whose values hold what must not be shown."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("hostile"))
    sandbox.applied()
    sandbox.commit({"shop/web.yaml": HOSTILE})
    sandbox.repo.git("branch", BRANCH, "main")
    return sandbox


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_a_plan_shows_nothing_that_hides_or_steers(sandbox: CommandSandbox, form: str) -> None:
    result = sandbox.run("plan", "--format", form, "--revision", BRANCH)
    assert result.code == 0, result
    assert "\\u009b2J" in result.out
    assert not BAD.search(result.out + result.err)
    if form == "markdown":
        assert f"`` {BRANCH}@" in result.out


def test_applied_text_is_escaped_in_output_and_keeps_its_bytes(sandbox: CommandSandbox) -> None:
    sandbox.applied()
    for words in (("describe", "workload/shop/web"), ("get",), ("events",), ("history",)):
        result = sandbox.run(*words)
        assert not BAD.search(result.out + result.err), words
    items = {}
    for form in ("json", "yaml"):
        result = sandbox.run("get", "workload", "web", "--gvc", "shop", "-o", form)
        assert not BAD.search(result.out)
        items[form] = yaml.safe_load(result.out)
    assert items["json"] == items["yaml"]
    assert items["json"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": VALUE}]
    assert not BAD.search(sandbox.status("README.md") + sandbox.status("shop/workload/web.yaml"))


NAMES = {
    "::stop-commands::tok.yaml": "./::stop-commands::tok.yaml:1:7: error",
    "::error::x.yaml": "./::error::x.yaml:1:7: error",
    " ::error::x.yaml": " :\\u003aerror::x.yaml:1:7: error",
    "##[group]x.yaml": "./#",
    "a##[group]x.yaml": "a#\\u0023[group]x.yaml:1:7: error",
    "a\x1b[2J\u202e.yaml": "a\\x1b[2J\\u202e.yaml: error",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["text", "json", "github", "gitlab", "sarif"])
@pytest.mark.parametrize("named", [".", "./", ""], ids=["directory", "with ./", "without ./"])
def test_the_name_of_a_file_is_no_command_of_a_job(name: str, form: str, named: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("kind: nothing\n")
    sandbox = CommandSandbox(tmp_path)
    path = named if named == "." else f"{named}{name}"
    result = sandbox.run("validate", path, "--format", form, cwd=tmp_path, GITHUB_ACTIONS="true")
    assert result.code == 1
    assert not BAD.search(result.out + result.err)
    assert not re.search(r"^\s*::(?!error file=)|##\[", result.out, re.MULTILINE)
    if form == "text":
        assert result.out.startswith(NAMES[name])
