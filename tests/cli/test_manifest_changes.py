"""`reconciler edit`, `patch` and `tag`: a commit in the source, checked before; comments and format stay."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.support.command_sandbox import SETTINGS, SHOP, CommandSandbox, golden

WEB = "workload/shop/web"
FILE = "shop/web.yaml"
COMMENTED = """# The page of the shop.
kind: workload
name: web
tags: {team: page}  # who is called
spec:
  type: standard
  containers:
    - name: main
      image: //image/web:1  # the page itself
"""
BESIDE = """---
kind: identity
name: web
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """A sandbox whose shop is applied; a workload has comments, and an identity beside it in its file."""
    sandbox = CommandSandbox(tmp_path, {**SHOP, FILE: COMMENTED + BESIDE})
    sandbox.applied()
    return sandbox


def in_git(sandbox: CommandSandbox) -> str:
    """The file of the workload at the newest commit."""
    return sandbox.repo.git("show", f"main:{FILE}")


def editor(sandbox: CommandSandbox, *scripts: str) -> str:
    """An editor that carries out one of ``scripts`` each time on the file ``$1``; each text that it gets is stored."""
    program, seen = sandbox.path / "editor.sh", sandbox.path / "seen"
    seen.mkdir(exist_ok=True)
    cases = "".join(f"{number}) {script};;\n" for number, script in enumerate(scripts))
    program.write_text(
        f'#!/bin/sh\nset -e\nn=$(ls {seen} | wc -l)\ncp "$1" {seen}/$n\nstat -c %a "$1" >{sandbox.path}/mode\n'
        f"case $n in\n{cases}*) ;;\nesac\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def seen_by_editor(sandbox: CommandSandbox) -> list[str]:
    """The texts that the editor got."""
    return [path.read_text() for path in sorted((sandbox.path / "seen").iterdir())]


def test_what_the_commands_answer(sandbox: CommandSandbox) -> None:
    transcript = ""
    for words in (
        ("patch", WEB, "spec.containers.main.image=//image/web:2"),
        ("patch", WEB, "spec.containers.main.image=//image/web:2"),
        ("patch", WEB, "spec.containers.main.cpu=60m", "--dry-run"),
        ("patch", WEB, "spec.containers.main.cpu=5"),
        ("patch", WEB, "--patch", '{"spec": {"type": "standing"}}'),
        ("patch", WEB, "--patch", '{"name": "page"}'),
        ("patch", WEB, "--patch", "{"),
        ("patch", WEB, "--patch", "[]"),
        ("patch", WEB),
        ("patch", WEB, "a=1", "--patch", "{}"),
        ("patch", WEB, "spec.containers.main=a"),
        ("patch", "workload/shop/wed", "a=1"),
        ("tag", WEB, "team=shop", "tier=front"),
        ("tag", WEB, "tier-", "--message", "Forget the tier"),
        ("tag", WEB, "tier-"),
        ("tag", WEB, "tier"),
        ("tag", WEB),
        ("tag", WEB, "tier=back", "--review"),
        ("rollback", WEB, "main~2", "--dry-run"),
        ("rollback", WEB, "main~2", "--reason", "the shop has no front"),
        ("rollback", WEB, "main~3"),
        ("rollback", WEB, "nowhere"),
        ("rollback", WEB, "--previous"),
        ("rollback", WEB, "main~1", "--force"),
        ("rollback", "main", "main~1", "--dry-run"),
    ):
        ended = sandbox.run(*words)
        transcript += f"$ reconciler {' '.join(words)}\n{ended.out}{ended.err}"
        transcript += f"(exit code {ended.code})\n" if ended.code else ""
    golden("manifest-changes.txt", transcript)


def test_comments_and_format_stay(sandbox: CommandSandbox) -> None:
    assert sandbox.run("patch", WEB, "spec.containers.main.image=//image/web:2").code == 0
    assert sandbox.run("tag", WEB, "team=shop").code == 0
    assert in_git(sandbox) == (COMMENTED.replace("web:1", "web:2").replace("team: page", "team: shop") + BESIDE).strip()


def test_the_commit_names_its_operator_and_so_does_an_event(sandbox: CommandSandbox) -> None:
    sandbox.run("tag", WEB, "team=shop", "--message", "Give the page to the shop", LOGNAME="ann", USER="ann")
    shown = sandbox.repo.git("log", "-1", "--format=%s %an %ae", "main")
    assert shown == "Give the page to the shop ann ann@user.acme"
    assert "ChangeCommitted" in sandbox.run("events", WEB).out
    assert "user/ann: updated in main by the commit" in sandbox.run("events", WEB).out
    sandbox.applied()
    assert '"team": "shop"' in sandbox.run("get", "workload", "web", "-o", "json").out


def test_a_change_for_a_review_leaves_the_branch_alone(sandbox: CommandSandbox) -> None:
    before = in_git(sandbox)
    assert sandbox.run("tag", WEB, "team=shop", "--review").code == 0
    assert in_git(sandbox) == before
    [branch] = sandbox.repo.git("for-each-ref", "--format=%(refname:short)", "refs/heads/reconciler/change-*").split()
    assert "team: shop" in sandbox.repo.git("show", f"{branch}:{FILE}")


def test_settings_that_want_reviews_get_them(sandbox: CommandSandbox) -> None:
    sandbox.settings.write_text(SETTINGS + "api: {writes: branch}\n")
    before = in_git(sandbox)
    assert "open a review: merge reconciler/change-" in sandbox.run("tag", WEB, "team=shop").out
    assert in_git(sandbox) == before


def test_a_program_gets_the_change_as_json(sandbox: CommandSandbox) -> None:
    answer = sandbox.run("tag", WEB, "team=shop", "-o", "json").json
    assert answer["key"] == WEB
    assert answer["change"]["commit"] == sandbox.repo.git("rev-parse", "main")
    assert "+tags: {team: shop}  # who is called" in answer["change"]["diff"]
    assert [step["key"] for step in answer["change"]["plan"]["steps"]] == [WEB, WEB]
    assert sandbox.run("tag", WEB, "team=shop", "-o", "json").json == {"key": WEB, "change": None}
    refused = sandbox.run("patch", WEB, "spec.type=standing", "-o", "json")
    assert (refused.code, refused.json["findings"][0]["path"]) == (1, FILE)


def test_a_source_without_a_branch_is_not_changed(sandbox: CommandSandbox) -> None:
    commit = sandbox.repo.git("rev-parse", "main")
    sandbox.settings.write_text(SETTINGS.replace("branch: main", f"commit: {commit}"))
    ended = sandbox.run("tag", WEB, "team=shop")
    assert (ended.code, ended.err) == (1, "error: the source main follows no branch, so nothing can be written to it\n")


def test_values_of_a_secret_are_not_shown(sandbox: CommandSandbox) -> None:
    ended = sandbox.run("patch", "secret/db", "data.password=correct-horse-battery")
    assert ended.code == 0, ended
    assert "correct-horse" not in ended.out + ended.err
    assert "password: correct-horse-battery" in sandbox.repo.git("show", "main:secrets.yaml")


def test_the_text_of_an_edited_manifest_is_committed_as_it_is_written(sandbox: CommandSandbox) -> None:
    program = editor(sandbox, "sed -i 's/# the page itself/# the page, and its pictures/; s/web:1/web:2/' \"$1\"")
    ended = sandbox.run("edit", WEB, EDITOR=program, VISUAL="")
    assert ended.code == 0, ended
    assert f"{WEB}: commit " in ended.out
    after = COMMENTED.replace("web:1  # the page itself", "web:2  # the page, and its pictures")
    assert in_git(sandbox) == (after + BESIDE).strip()
    [shown] = seen_by_editor(sandbox)
    assert shown == f"# reconciler: {WEB} in {FILE} of the source main\n{COMMENTED}"
    assert (sandbox.path / "mode").read_text() == "600\n"


def test_a_comment_alone_is_a_change(sandbox: CommandSandbox) -> None:
    program = editor(sandbox, "sed -i 's/The page/The face/' \"$1\"")
    assert "Plan: nothing to do." in sandbox.run("edit", WEB, EDITOR=program, VISUAL="").out
    assert in_git(sandbox).startswith("# The face of the shop.")


@pytest.mark.parametrize("script", [":", 'printf "" >"$1"', "sed -i '/^kind/i # reconciler: not at the top' \"$1\""])
def test_an_unchanged_or_empty_text_makes_no_commit(sandbox: CommandSandbox, script: str) -> None:
    before = sandbox.repo.git("rev-parse", "main")
    ended = sandbox.run("edit", WEB, EDITOR=editor(sandbox, script), VISUAL="")
    if "not at the top" not in script:
        assert (ended.code, ended.out) == (0, f"{WEB} is unchanged\n")
        assert sandbox.repo.git("rev-parse", "main") == before
    else:
        assert sandbox.repo.git("rev-parse", "main") != before, "a comment of an author stays"


def test_an_invalid_text_is_opened_again_with_what_is_wrong_above_it(sandbox: CommandSandbox) -> None:
    program = editor(
        sandbox,
        "sed -i 's/type: standard/type: standing/' \"$1\"",
        "sed -i 's/type: standing/type: standard/; s/web:1/web:2/; s/name: web/name: page/' \"$1\"",
        "sed -i 's/name: page/name: web/; s/spec:/spec: {/' \"$1\"",
        "sed -i 's/spec: {/spec:/' \"$1\"",
    )
    ended = sandbox.run("edit", WEB, EDITOR=program, VISUAL="")
    assert ended.code == 0, ended
    notes = [
        [line for line in text.splitlines() if line.startswith("# reconciler: ")] for text in seen_by_editor(sandbox)
    ]
    above = "".join(f"{line}\n" for lines in notes for line in lines)
    golden("edit.txt", f"$ reconciler edit {WEB}\n{ended.out}above the text in the editor, each time\n{above}")
    line = int(notes[1][0].partition("line ")[2].partition(":")[0])
    assert "standing" in seen_by_editor(sandbox)[1].splitlines()[line - 1]
    assert in_git(sandbox) == (COMMENTED.replace("web:1", "web:2") + BESIDE).strip()


def test_a_text_that_stays_invalid_changes_nothing_and_is_not_lost(sandbox: CommandSandbox) -> None:
    before = sandbox.repo.git("rev-parse", "main")
    program = editor(sandbox, "sed -i 's/type: standard/type: standing/' \"$1\"")
    ended = sandbox.run("edit", WEB, EDITOR=program, VISUAL="")
    assert ended.code == 1
    assert f"error: {WEB} is not changed: line 7: `standing` is not allowed here" in ended.err
    saved = Path(ended.err.rpartition("still in ")[2].strip())
    assert "type: standing" in saved.read_text()
    saved.unlink()
    assert sandbox.repo.git("rev-parse", "main") == before


def test_what_others_changed_meanwhile_is_not_overwritten(sandbox: CommandSandbox, tmp_path: Path) -> None:
    theirs = COMMENTED.replace("web:1", "web:3") + BESIDE
    (tmp_path / "theirs").write_text(theirs)
    push = (
        f"git clone -q {sandbox.repo.path} {tmp_path}/clone && cp {tmp_path}/theirs {tmp_path}/clone/{FILE} && "
        f"git -C {tmp_path}/clone -c user.name=x -c user.email=x@y commit -qam theirs && "
        f"git -C {tmp_path}/clone push -q"
    )
    program = editor(sandbox, f"{push}; sed -i 's/web:1/web:2/' \"$1\"")
    ended = sandbox.run("edit", WEB, EDITOR=program, VISUAL="")
    assert ended.code == 1
    assert f"{WEB} was changed meanwhile, in the same fields: read it again; the text is still in " in ended.err
    Path(ended.err.rpartition("still in ")[2].strip()).unlink()
    assert in_git(sandbox) == theirs.strip()


def test_an_editor_that_fails_changes_nothing(sandbox: CommandSandbox) -> None:
    ended = sandbox.run("edit", WEB, EDITOR="false", VISUAL="")
    assert (ended.code, ended.err) == (1, "error: the editor ended with code 1, so nothing was changed\n")
    ended = sandbox.run("edit", WEB, EDITOR="no-such-editor", VISUAL="")
    assert ended.code == 2
    assert "the editor no-such-editor does not start" in ended.err
    ended = sandbox.run("edit", WEB, EDITOR="", VISUAL="")
    assert (ended.code, "there is no terminal for an editor: set EDITOR" in ended.err) == (2, True)


def test_who_changed_a_manifest_does_not_approve_that(sandbox: CommandSandbox) -> None:
    sandbox.settings.write_text(SETTINGS + "approval: deletes\napprovalFourEyes: true\n")
    ann, bob = ({"LOGNAME": name, "USER": name} for name in ("ann", "bob"))
    fields = ("spec.type=stateful", "tags.reconciler/allow-replace=true")
    assert sandbox.run("patch", WEB, *fields, **ann).code == 0
    sandbox.run("apply")
    digest = sandbox.plan()["hold_digest"]
    refused = sandbox.run("approve", digest, **ann)
    assert f"ann made the change of {WEB}; another person approves it (approvalFourEyes)" in refused.err
    assert sandbox.run("approve", digest, **bob).code == 0


def test_a_later_document_of_a_file_is_edited_alone(sandbox: CommandSandbox) -> None:
    program = editor(
        sandbox, "sed -i '$a unknown: 1' \"$1\"", "sed -i 's/^unknown: 1/description: of the page/' \"$1\""
    )
    assert sandbox.run("edit", "identity/shop/web", EDITOR=program, VISUAL="").code == 0
    first, second = seen_by_editor(sandbox)
    assert first.splitlines()[1:] == ["kind: identity", "name: web"]
    line = int(second.partition("line ")[2].partition(":")[0])
    assert second.splitlines()[line - 1] == "unknown: 1"
    assert in_git(sandbox) == f"{COMMENTED}{BESIDE}description: of the page"


def test_a_manifest_in_json_stays_json(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/more.json": '{\n  "kind": "identity",\n  "name": "more"\n}\n'})
    sandbox.applied()
    program = editor(sandbox, 'sed -i \'s/"more"$/"more", "description": "one more"/\' "$1"')
    assert sandbox.run("edit", "identity/shop/more", EDITOR=program, VISUAL="").code == 0
    assert sandbox.run("tag", "identity/shop/more", "team=web").code == 0
    assert sandbox.repo.git("show", "main:shop/more.json").startswith(
        '{\n  "kind": "identity",\n  "name": "more", "desc'
    )
    assert '"team": "web"' in sandbox.repo.git("show", "main:shop/more.json")


@pytest.mark.parametrize("words", [("edit", "secret/db"), ("tag", "secret/db", "team=web")])
def test_an_encrypted_secret_is_not_edited_as_text(sandbox: CommandSandbox, words: tuple[str, ...]) -> None:
    sealed = "kind: secret\nname: db\ntype: dictionary\ndata:\n  user: ENC[AES256_GCM,data:x,iv:x,tag:x,type:str]\n"
    commit = sandbox.commit({"secrets.yaml": f"{sealed}sops:\n  mac: x\n"})
    ended = sandbox.run(*words, EDITOR=editor(sandbox, ":"), VISUAL="")
    assert ended.code == 1
    assert "secret/db" in ended.err
    assert sandbox.repo.git("rev-parse", "main") == commit
