"""A resource or source is named as people write it: by key, link, kind and name, or name alone, in every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_sandbox import GVC, CommandSandbox, workload

WAYS = [
    "workload/shop/web",
    "workload shop/web",
    "workloads/shop/web",
    "wl/web",
    "workload web",
    "wl web",
    "workloads web",
    "w web --gvc shop",
    "shop/web",
    "web",
    "//gvc/shop/workload/web",
    "/org/acme/gvc/shop/workload/web",
]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox whose shop is applied, with another GVC that has an `api`, too."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("targets"))
    sandbox.commit({"ops/gvc.yaml": GVC.replace("shop", "ops"), "ops/api.yaml": workload("api")})
    assert sandbox.run("apply").code == 0
    return sandbox


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command", ["describe", "get"])
def test_a_resource_has_many_names(sandbox: CommandSandbox, command: str, way: str) -> None:
    if command == "get":
        way = {"web": "w web", "shop/web": "w shop/web"}.get(way, way)  # its first word is a kind
    result = sandbox.run(command, *way.split())
    assert (result.code, result.err) == (0, "")
    assert "workload/shop/web" in result.out


@pytest.mark.parametrize(
    "command",
    ["events", "drift", "retry", "suspend", "resume", "orphan", "adopt", "tag {} a=b --dry-run", "history --last 3"],
)
@pytest.mark.parametrize("way", ["wl web", "web", "workload/web"])
def test_every_command_takes_them(sandbox: CommandSandbox, command: str, way: str) -> None:
    if command.startswith("history"):
        way, command = "source/main", "history {} --last 3"
    words = command.format(way) if "{}" in command else f"{command} {way}"
    result = sandbox.run(*words.split())
    assert "names" not in result.err
    assert result.code == 0 or "workload/shop/web" in result.err, result


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (
            "describe api",
            2,
            "'api' names 3 resources: identity/shop/api, workload/ops/api, workload/shop/api; write the whole key of "
            "one",
        ),
        (
            "describe workload api",
            2,
            "'workload/api' names 2 resources: workload/ops/api, workload/shop/api; write the whole key of one",
        ),
        ("describe wbe", 1, "there is no resource or source 'wbe'; did you mean web?"),
        ("describe mian", 1, "there is no resource or source 'mian'; did you mean main?"),
        (
            "describe workload wbe --gvc shop",
            1,
            "there is no workload/shop/wbe, neither in Git nor in the records; did you mean workload/shop/web?",
        ),
        ("describe /org/b/gvc/shop/workload/web", 1, "workload/web is of the org b; the settings are of acme"),
        ("restart source/main", 2, "source/main is a source; name a resource"),
        ("snapshots source/main", 2, "source/main is a source; name a resource"),
    ],
)
def test_what_is_not_clear_is_asked(sandbox: CommandSandbox, words: str, code: int, error: str) -> None:
    result = sandbox.run(*words.split())
    assert result.code == code
    assert result.err.splitlines()[-1].endswith(error)


@pytest.mark.parametrize("words", ["describe workload", "describe workload/", "describe //x//y", "describe a/b/c/d/e"])
def test_what_names_nothing_is_wrong_use(sandbox: CommandSandbox, words: str) -> None:
    result = sandbox.run(*words.split())
    assert (result.code, result.out) == (2, "")


def test_a_source_and_a_resource_are_described_by_their_bare_names(sandbox: CommandSandbox) -> None:
    for way in ("main", "source/main", "source main", "sources/main", "src main"):
        result = sandbox.run("describe", *way.split())
        assert result.out.startswith("source/main"), way


def test_kinds_have_plurals_and_short_names(sandbox: CommandSandbox) -> None:
    whole = sandbox.run("get", "volumeset").out
    assert "volumeset/shop/data" in whole
    assert {sandbox.run("get", word).out for word in ("volumesets", "vs")} == {whole}
    assert "policy/reveal-db" in sandbox.run("get", "policies").out


def test_words_after_the_target_stay_their_own(sandbox: CommandSandbox) -> None:
    result = sandbox.run("patch", "--dry-run", "wl", "web", "tags.team=web")
    assert (result.code, "nothing was committed" in result.out) == (0, True), result


def test_options_may_stand_between(sandbox: CommandSandbox, tmp_path: Path) -> None:
    result = sandbox.run("events", "workload", "--last", "1", "web", cwd=tmp_path)
    assert (result.code, result.out.count("\n")) == (0, 1), result
