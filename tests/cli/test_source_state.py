"""Is my commit live, and if not, why: `get`, `describe`, `history` and events answer, and report the recovery."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.command_sandbox import SETTINGS, SHOP, CommandSandbox, workload
from tests.support.git import GitRepo

BAD = "kind: workload\nname: bad\n"
TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """A sandbox whose shop is applied."""
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    return sandbox


def refused(sandbox: CommandSandbox, message: str = "Serve the new page") -> str:
    """A commit that is refused; its id."""
    commit = sandbox.commit({"shop/bad.yaml": BAD, "shop/web.yaml": workload("web", "2")}, message=message)
    assert sandbox.run("apply").code == 1
    return commit


def source_events(sandbox: CommandSandbox) -> list[tuple[str, str]]:
    lines = sandbox.run("events", "source/main", "-o", "json").out.splitlines()
    return [(event["reason"], event["message"]) for event in map(json.loads, lines)]


def live(sandbox: CommandSandbox) -> str:
    """The answer of `describe`."""
    result = sandbox.run("describe", "source/main")
    assert result.code == 0, result.err
    [line] = [line for line in result.out.splitlines() if line.startswith("  Live")]
    return line.split(maxsplit=1)[1]


def test_get_shows_the_refused_commit_and_the_applied_one(sandbox: CommandSandbox) -> None:
    first = sandbox.repo.git("rev-parse", "main")
    assert sandbox.run("get").err == ""
    bad = refused(sandbox)
    result = sandbox.run("get")
    assert result.code == 0
    assert re.fullmatch(
        rf"source main: {bad[:12]} \(Serve the new page, [^)]+\) is refused since {TIME}: \d errors?; the first: "
        rf"shop/bad\.yaml:\d+:\d+: .*; applied is {first[:12]} \(.*\)\n",
        result.err,
    ), result.err
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        [source] = read(sandbox.run("get", "workload", "-o", form).out)["sources"]
        assert (source["name"], source["ready"], source["reason"]) == ("main", False, "InvalidRevision")
        assert source["applied"]["revision"] == f"main@sha1:{first}"
        assert source["refused"]["revision"] == f"main@sha1:{bad}"
        assert source["refused"]["subject"] == "Serve the new page"
        assert (source["pinned"], source["suspended"]) == (None, None)


def test_what_a_refused_commit_adds_is_not_called_missing_without_a_word(sandbox: CommandSandbox) -> None:
    bad = refused(sandbox)
    for command in ("describe", "events"):
        result = sandbox.run(command, "secret/added")
        assert result.code == 1
        assert f"; what {bad[:12]} of main adds is not known, as it is refused: reconciler status\n" in result.err
    assert "is refused" not in sandbox.run("describe", "workload/shop/wep").err, "a misspelled name"


def test_a_commit_of_a_rollback_is_shown_once_and_short(sandbox: CommandSandbox) -> None:
    first = sandbox.repo.git("rev-parse", "main")
    sandbox.commit({"shop/web.yaml": workload("web", "2")}, message="Release 2")
    sandbox.applied()
    assert sandbox.run("rollback", "main", first).code == 0
    sandbox.applied()
    shown = sandbox.run("describe", "source/main").out
    assert re.search(rf"^  Applied +sha1:{first[:12]} \(", shown, re.MULTILINE), shown
    for word in ("describe source/main", "status", "get sources", "events source/main", "doctor"):
        assert first not in sandbox.run(*word.split()).out, word


def test_describe_answers_whether_the_newest_commit_is_live(sandbox: CommandSandbox) -> None:
    assert live(sandbox) == "yes"
    bad = refused(sandbox)
    assert live(sandbox).startswith(f"no: {bad[:12]} (Serve the new page, ")
    assert sandbox.run("describe", "source/main").out.count(bad[:12]) >= 3
    good = sandbox.commit({"shop/bad.yaml": None}, message="Mend it")
    assert live(sandbox).startswith("no: "), "no run has read it yet"
    sandbox.applied()
    assert live(sandbox) == "yes"
    newer = sandbox.commit({"shop/web.yaml": workload("web", "3")}, message="Go on")
    assert (
        live(sandbox) == f"not yet: {newer[:12]} (Go on) was not read yet; no daemon runs; `reconciler apply` reads it"
    )
    sandbox.run("rollback", "main", good[:12], "--reason", "later")
    sandbox.applied()
    assert re.match(rf"no: \S+ rolled it back to {good[:12]}: later", live(sandbox))
    sandbox.run("resume", "main")
    sandbox.run("suspend", "main", "--reason", "freeze")
    assert re.match(r"no: suspended by \S+: freeze", live(sandbox))
    [source] = sandbox.run("get", "-o", "json").json["sources"]
    assert (source["suspended"]["why"], source["suspended"]["until"]) == ("freeze", None)


def test_a_commit_whose_steps_wait_is_not_all_live(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/db.yaml": None})
    assert sandbox.run("apply").code == 1
    assert live(sandbox).startswith("not all of it: ApprovalRequired: ")


def test_the_history_lists_a_refused_revision_once_however_often_it_is_tried(sandbox: CommandSandbox) -> None:
    bad = refused(sandbox)
    for _ in range(3):
        assert sandbox.run("apply").code == 1
    newest, first = sandbox.run("history", "-o", "json").json["items"]
    assert (newest["outcome"], first["outcome"]) == ("refused", "applied")
    assert newest["revision"] == f"main@sha1:{bad}"
    assert "shop/bad.yaml" in newest["message"]
    assert re.search(rf"main {bad[:12]}  refused +\S+ s  1 error; the first: shop/bad.yaml", sandbox.run("history").out)
    worse = refused(sandbox, "Try again")
    assert [run["revision"].rpartition(":")[2] for run in sandbox.run("history", "-o", "json").json["items"][:2]] == [
        worse,
        bad,
    ]
    assert [reason for reason, _ in source_events(sandbox)].count("InvalidRevision") >= 2


def test_the_end_of_a_refusal_is_an_event(sandbox: CommandSandbox) -> None:
    bad = refused(sandbox)
    refused(sandbox, "Try again")
    assert "Recovered" not in dict(source_events(sandbox)), "another refused commit is no end"
    assert dict(source_events(sandbox)[:1])["InvalidRevision"].startswith(f"{bad[:12]} (Serve the new page, ")
    sandbox.commit({"shop/bad.yaml": None})
    sandbox.applied()
    assert source_events(sandbox)[-1][0] == "Recovered"
    assert source_events(sandbox)[-1][1].startswith("over: InvalidRevision: 1 error; the first: shop/bad.yaml")
    sandbox.applied()
    assert [reason for reason, _ in source_events(sandbox)].count("Recovered") == 1


def test_an_unreadable_source_and_its_recovery_are_reported_everywhere(sandbox: CommandSandbox) -> None:
    away = sandbox.path / "away"
    sandbox.repo.path.rename(away)
    for _ in range(2):
        assert sandbox.run("apply").code == 1
    unreadable = rf"source main: it cannot be read since {TIME}: SourceNotFound: .*; applied is "
    assert re.match(unreadable, sandbox.run("get").err)
    assert live(sandbox).startswith("no: it cannot be read since ")
    assert [run["outcome"] for run in sandbox.run("history", "-o", "json").json["items"]] == ["unreadable", "applied"]
    away.rename(sandbox.repo.path)
    sandbox.applied()
    assert [reason for reason, _ in source_events(sandbox)] == ["SourceNotFound", "Recovered"]
    assert sandbox.run("get").err == ""
    assert live(sandbox) == "yes"


def test_skipped_files_and_their_recovery_are_reported(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path, SHOP, SETTINGS + "onInvalid: skip\n")
    sandbox.applied()
    refused(sandbox)
    assert re.match(rf"source main: a part of it is not applied since {TIME}: InvalidFiles: ", sandbox.run("get").err)
    assert live(sandbox).startswith("no: a part of it is not applied since ")
    sandbox.commit({"shop/bad.yaml": None})
    sandbox.applied()
    assert source_events(sandbox)[-1][0] == "Recovered"


def test_a_subject_cannot_steer_the_terminal(sandbox: CommandSandbox) -> None:
    refused(sandbox, "\x1b[31mred\x07 \u202e")
    for result in (sandbox.run("get"), sandbox.run("describe", "source/main")):
        assert not re.search("[\x1b\x07\u202e]", (result.out + result.err).replace("\x1b[0m", "")), result


def test_a_failing_source_does_not_change_the_state_of_another(tmp_path: Path) -> None:
    both = SETTINGS.replace("locations:", "  - {name: extra, url: ./extra, branch: main}\nlocations:")
    sandbox = CommandSandbox(tmp_path, SHOP, both)
    GitRepo.create(tmp_path / "extra", {"bad.yaml": BAD})
    assert sandbox.run("apply").code == 1
    assert re.fullmatch(r"source extra: .* is refused since .*; nothing of it is applied\n", sandbox.run("get").err)
    states = {source["name"]: source["ready"] for source in sandbox.run("get", "-o", "json").json["sources"]}
    assert states == {"main": True, "extra": False}
