"""What does not exist is an error with the nearest name, for every command; a deleted resource has its history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_sandbox import CommandSandbox, workload

NO_KEY = "there is no workload/shop/wbe, neither in Git nor in the records; did you mean workload/shop/web?"
NO_GVC = "there is no gvc 'shpo', neither in Git nor in the records; did you mean shop?"
NO_SOURCE = "there is no source 'mian'; the settings have main"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox whose shop is applied, and one workload of it deleted again."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("desk"))
    sandbox.commit({"shop/old.yaml": workload("old")})
    sandbox.applied()
    sandbox.commit({"shop/old.yaml": None})
    sandbox.applied()
    return sandbox


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("describe", "workload/shop/wbe"), NO_KEY),
        (("events", "workload/shop/wbe"), NO_KEY),
        (("events", "workload/shop/wbe", "--follow"), NO_KEY),
        (("drift", "workload/shop/wbe"), NO_KEY),
        (("suspend", "workload/shop/wbe"), NO_KEY),
        (("resume", "workload/shop/wbe"), NO_KEY),
        (("retry", "workload/shop/wbe"), NO_KEY),
        (("restart", "workload/shop/wbe"), NO_KEY),
        (("orphan", "workload/shop/wbe"), NO_KEY),
        (("adopt", "workload/shop/wbe"), NO_KEY),
        (("logs", "workload/shop/wbe"), f"{NO_KEY} there are no logs on this host"),
        (("logs", "gvc/shpo"), f"{NO_GVC} there are no logs on this host"),
        (("get", "workload", "wbe"), "there is no workload 'wbe'; did you mean web?"),
        (("get", "workload", "--gvc", "shpo"), NO_GVC),
        (("get", "workload", "--gvc", "shpo", "-o", "json"), NO_GVC),
        (("top", "--gvc", "shpo"), NO_GVC),
        (
            ("describe", "workload/shop/data"),
            "there is no workload/shop/data, neither in Git nor in the records; did you mean volumeset/shop/data?",
        ),
        (("events", "source/mian"), NO_SOURCE),
        (("history", "mian"), NO_SOURCE),
        (("plan", "--source", "mian"), NO_SOURCE),
        (("sync", "mian"), NO_SOURCE),
        (("explain", "readines-missing"), "there is no rule 'readines-missing'; did you mean readiness-missing?"),
    ],
    ids=" ".join,
)
def test_an_unknown_name_is_an_error(sandbox: CommandSandbox, words: tuple[str, ...], why: str) -> None:
    assert sandbox.run(*words) == (1, "", f"error: {why}\n")


def test_a_source_among_resources_is_named_with_the_nearest(sandbox: CommandSandbox) -> None:
    for words in (("suspend", "mian"), ("resume", "mian"), ("rollback", "mian", "HEAD")):
        result = sandbox.run(*words)
        assert (result.code, result.err) == (1, "error: there is no resource or source 'mian'; did you mean main?\n")


def test_a_deleted_resource_has_its_history(sandbox: CommandSandbox) -> None:
    result = sandbox.run("events", "workload/shop/old")
    assert (result.code, result.err, result.out.count("Deleted")) == (0, "", 2)
    assert sandbox.run("drift", "workload/shop/old").code == 0
    assert sandbox.run("logs", "workload/shop/old").code == 0
    result = sandbox.run("describe", "workload/shop/old")
    deleted = "error: workload/shop/old was deleted; see: reconciler events workload/shop/old\n"
    assert (result.code, result.err) == (1, deleted)


def test_an_empty_answer_is_no_error(sandbox: CommandSandbox) -> None:
    for words in (
        ("events", "source/main"),
        ("get", "agent"),
        ("get", "workload", "--gvc", "shop"),
        ("top", "--gvc", "shop"),
    ):
        assert sandbox.run(*words).code == 0, words


def test_a_resource_that_is_only_in_git_is_known(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.run("suspend", "workload/shop/web")
    tags = "tags: {reconciler/depends-on: workload/web}\n"
    sandbox.commit({"shop/web.yaml": workload("web", "2"), "shop/after.yaml": workload("after", more=tags)})
    assert sandbox.run("apply").code == 1
    result = sandbox.run("get", "workload", "after")
    assert result.code == 1
    assert "workload 'after' is in Git, and not applied yet" in result.err
    assert sandbox.run("events", "workload/shop/after").code == 0
