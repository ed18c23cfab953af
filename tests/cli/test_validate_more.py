"""`validate` reads standard input, repairs what has one safe repair, and checks again when files change."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.manifests.normalize import ManifestContext
from reconciler.review.repairs import repair_text
from tests.support.command_sandbox import here

GVC = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
BROKEN = """# why it is here
kind: workload
name: web
gvc: shop
descripton: 7  # of the week
version: 3
status:
  ready: true
spec:
  type: 'standrd'
  containers:
    - name: main
      image: nginx:1.27
      cpu: 0.5
      memory: 128Mi
      ports:
        - number: "8080"
          protocol: http
      env:
        - name: A
          value: yes
        - {name: B, value: true}
  defaultOptions:
    capacityAI: "false"
    debug: off
---
kind: Gvc
name: shop
version: 3
spec: {staticPlacement: {locationLinks: [//location/here]}}
"""
REPAIRED = """# why it is here
kind: workload
name: web
gvc: shop
description: "7"  # of the week
spec:
  type: 'standard'
  containers:
    - name: main
      image: nginx:1.27
      cpu: 500m
      memory: 128Mi
      ports:
        - number: 8080
          protocol: http
      env:
        - name: A
          value: "yes"
        - {name: B, value: "true"}
  defaultOptions:
    capacityAI: false
    debug: false
---
kind: gvc
name: shop
spec: {staticPlacement: {locationLinks: [//location/here]}}
"""


def repair(text: str) -> str:
    return repair_text(text, ManifestContext("org", secret_key=b"looked at", secrets="any", org_known=False))


def test_all_that_has_one_repair_is_repaired_and_nothing_else_changes() -> None:
    assert repair(BROKEN) == REPAIRED
    assert repair(REPAIRED) == REPAIRED


@pytest.mark.parametrize(
    "text",
    [
        f"{GVC}description: one\ndescripton: two\n",
        "kind: gvc\nname: Shop_1\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n",
        f"{GVC}colour: red\n",
        "kind: gvc\nname: [\n",
        GVC.replace("//location/here", "location/here"),
        BROKEN.replace("128Mi", "128M").split("  containers:")[0].replace("standrd", "large"),
        "",
    ],
    ids=["field is there already", "name", "no field is alike", "syntax", "link", "no value is alike", "empty"],
)
def test_what_a_person_has_to_decide_stays(text: str) -> None:
    assert [line for line in repair(text).splitlines() if line not in text.splitlines()] in (
        [],
        ['description: "7"  # of the week'],
    )


def test_the_changes_are_shown_and_the_rest_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gvc.yaml").write_text(f"{GVC}descripton: mine\nsize: 3\n")
    (tmp_path / "notes.md").write_text("descripton: of nothing\n")
    result = here("validate", "--fix", ".", cwd=tmp_path)
    assert result.code == 1
    assert result.err == "repaired gvc.yaml\n  - descripton: mine\n  + description: mine\n"
    assert result.out.startswith("gvc.yaml:5:1: error: unknown field `size`")
    assert (tmp_path / "gvc.yaml").read_text() == f"{GVC}description: mine\nsize: 3\n"
    again = here("validate", "--fix", "gvc.yaml", cwd=tmp_path)
    assert (again.code, again.err) == (1, "")


def test_a_repaired_secret_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(
        "kind: secret\nname: db\ntype: dictionary\ntagz: {a: b}\ndata: {pin: 90817263}\n"
    )
    result = here("validate", "--fix", "secret.yaml", cwd=tmp_path)
    assert "90817263" not in result.out + result.err
    assert "repaired secret.yaml" in result.err
    assert '{pin: "90817263"}' in (tmp_path / "secret.yaml").read_text()


def read_input(text: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reconciler.cli", "validate", "-", *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize(
    ("text", "code", "shown"),
    [
        (GVC, 0, "no findings in 1 document, 1 resource\n"),
        (f"{GVC}colour: red\n", 1, "stdin:4:1: error: unknown field `colour`"),
        (f"{GVC}---\n{GVC}", 1, "gvc/shop is declared twice: here and at stdin:1 "),
        ('{"kind": "gvc", "name": "shop", "colour": 1}', 1, "stdin:1:33: error: unknown field `colour`"),
        (
            "services: {web: {image: nginx}}\n",
            1,
            "standard input is a compose file; convert it with: reconciler convert -",
        ),
    ],
    ids=["sound", "wrong", "twice", "json", "compose"],
)
def test_standard_input_is_checked_by_itself(tmp_path: Path, text: str, code: int, shown: str) -> None:
    (tmp_path / "gvc.yaml").write_text(GVC)
    result = read_input(text, cwd=tmp_path)
    assert (result.returncode, shown in result.stdout + result.stderr) == (code, True), result


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("empty.yaml", "\n", "empty.yaml is empty"),
        ("notes.yaml", "# later\n---\n", "notes.yaml has no document, only comments or ---"),
        (".", "# later\n", "every file below . is empty or has only comments"),
    ],
)
def test_a_note_names_a_file_without_a_manifest(tmp_path: Path, name: str, text: str, note: str) -> None:
    (tmp_path / ("notes.yaml" if name == "." else name)).write_text(text)
    result = here("validate", name, cwd=tmp_path)
    assert (result.code, result.out) == (0, "no findings in 0 documents, 0 resources\n")
    assert result.err == (
        f"note: {note}; a manifest begins with kind and name; for what follows: reconciler explain workload\n"
    )
    assert "standard input has no manifest" in read_input(text, cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-", "--fix"], "- is standard input, which cannot be written or watched"),
        (["-", "--watch"], "- is standard input, which cannot be written or watched"),
        (["--fix"], "--fix is for a PATH"),
        (["--watch"], "--watch is for a PATH"),
    ],
)
def test_a_wrong_use_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    result = here("validate", *words, cwd=tmp_path)
    assert (result.code, message in result.err) == (2, True), result


def test_a_change_is_checked_and_ctrl_c_ends_the_watch(tmp_path: Path) -> None:
    file = tmp_path / "gvc.yaml"
    file.write_text(GVC)
    command = [sys.executable, "-m", "reconciler.cli", "validate", "--watch", "gvc.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = [running.stdout.readline() for _ in range(2)]
        assert first[0].startswith("checked at ")
        assert first[1] == "no findings in 1 document, 1 resource\n"
        (tmp_path / "other.yaml").write_text("not watched")
        (tmp_path / "new").write_text(f"{GVC}colour: red\n")
        (tmp_path / "new").replace(file)  # as editors do
        second = [running.stdout.readline() for _ in range(2)]
        assert "unknown field `colour`" in second[1]
        running.send_signal(signal.SIGINT)
        running.stdout.read()
    assert running.returncode == 130
