"""Everything that reads has the same forms: text, wide, JSON, YAML, names, and what a JSONPath finds."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.support.command_sandbox import GVC, CommandSandbox, workload

READING = [
    "get",
    "get workload",
    "get workload web",
    "get sources",
    "describe web",
    "describe source/main",
    "status",
    "history",
    "snapshots",
    "top",
    "drift",
    "plan",
    "diff main main",
    "validate",
    "command workload/shop/web",
    "rules --severity notice",
    "explain readiness-missing",
    "version",
    "doctor",
    "tag web a=b --dry-run",
]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox whose shop is applied; web has tags, and api was changed once."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("output"))
    sandbox.commit({"shop/web.yaml": workload("web", more='tags: {team: front, stage: live, draft: ""}\n')})
    sandbox.applied()
    return sandbox


@pytest.mark.parametrize("command", READING)
def test_yaml_is_json_in_another_form(sandbox: CommandSandbox, command: str) -> None:
    in_json, in_yaml = (sandbox.run(*command.split(), "-o", form) for form in ("json", "yaml"))
    assert (in_json.code, in_json.out != "") == (in_yaml.code, True), in_json.err
    one, other = json.loads(in_json.out), yaml.safe_load(in_yaml.out)
    volatile = ("ageSeconds", "cpuMillicores", "memoryBytes", "checked", "id", "digest", "revision")
    assert _without(one, volatile) == _without(other, volatile)


def _without(value: object, names: tuple[str, ...]) -> object:
    if isinstance(value, dict):
        return {name: _without(member, names) for name, member in value.items() if name not in names}
    return [_without(member, names) for member in value] if isinstance(value, list) else value


@pytest.mark.parametrize("command", [*READING, "events", "logs workload/shop/web", "render"])
def test_a_form_that_is_not_there_is_wrong_use(sandbox: CommandSandbox, command: str) -> None:
    for form, why in (("jsn", "there is no form 'jsn'; did you mean json?"), ("go-template", "is not supported")):
        result = sandbox.run(*command.split(), "-o", form)
        assert (result.code, result.out) == (2, "")
        assert why in result.err


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("get workload", ["workload/shop/api", "workload/shop/db", "workload/shop/web"]),
        ("get workload web", ["workload/shop/web"]),
        ("get wl web", ["workload/shop/web"]),
        ("get secret", ["secret/db"]),
        ("get sources", ["source/main"]),
        ("describe web", ["workload/shop/web"]),
        ("describe main", ["source/main"]),
        ("history", ["1"]),
        ("events web --limit 1", ["workload/shop/web"]),
        ("explain readiness-missing", ["readiness-missing"]),
        ("get -l team=front", ["workload/shop/web"]),
        ("get -l team=front,stage=live", ["workload/shop/web"]),
        ("get -l team=front,stage=test", []),
        ("get workload -l team!=front", ["workload/shop/api", "workload/shop/db"]),
        ("get workload -l !team", ["workload/shop/api", "workload/shop/db"]),
        ("get --selector draft", ["workload/shop/web"]),
        ("events -l team --limit 500", ["workload/shop/web"]),
        ("get workload --sort-by -.name", ["workload/shop/web", "workload/shop/db", "workload/shop/api"]),
        ("get workload --sort-by {.tags.team} --limit 1", ["workload/shop/api"]),
        ("get --limit 2", ["gvc/shop", "identity/shop/api"]),
        ("get --since 2100-01-01T00:00:00Z", []),
        ("get wl --since 1h30m", ["workload/shop/api", "workload/shop/db", "workload/shop/web"]),
        ("history --since 20", ["1"]),
        ("diff main main", []),
    ],
)
def test_names_are_those_that_other_commands_take(sandbox: CommandSandbox, command: str, names: list[str]) -> None:
    result = sandbox.run(*command.split(), "-o", "name")
    assert (result.code, result.out.splitlines()) == (0, names), result.err


def test_a_set_of_values_is_chosen(sandbox: CommandSandbox) -> None:
    for selector, chosen in (("stage in (test, live)", 1), ("stage notin (test,live)", 2)):
        assert len(sandbox.run("get", "workload", "-l", selector, "-o", "json").json["items"]) == chosen


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("get -l a==b==c", "'a==b==c' is no selector of tags; write k=v"),
        ("get -l a,=b", "'=b' in 'a,=b' is no selector of tags"),
        ("get --sort-by .nmae", "--sort-by: nothing has .nmae; did you mean name?"),
        ("get --sort-by .a[", "--sort-by: '[' is not supported; a path has .name"),
        ("get --since yesterday", "write a time such as 2026-01-31T12:00:00Z, or 30m, 2h, 3d"),
        ("get --limit 0", "0 is not in the range x>=1"),
        ("get source --gvc shop", "sources are in no GVC; leave --gvc out"),
        ("get -o jsonpath={.items[*].name", "has a brace without its other half"),
        ("get -o jsonpath", "write a path after jsonpath="),
        ("events --follow --sort-by .time", "use one of them"),
    ],
)
def test_a_wrong_choice_is_wrong_use(sandbox: CommandSandbox, words: str, why: str) -> None:
    result = sandbox.run(*words.split())
    assert (result.code, result.out) == (2, "")
    assert why in result.err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("get workload -o jsonpath={.items[*].name}", "api db web\n"),
        ("get workload web -o jsonpath={.spec.containers[0].image}", "/org/acme/image/web:1\n"),
        ("describe main -o jsonpath={.live}", "yes\n"),
        ("status -o jsonpath={.outlook}", "well\n"),
        ("events web -o jsonpath={.items[*].reason}", "Created Created\n"),
        ("history -o jsonpath={.items[0].counts.created}", "8\n"),
        ('get -o jsonpath={.items[?(@.kind=="secret")].name}', "db\n"),
        ('rules -o jsonpath={[?(@.rule=="readiness-missing")].severity}', "warning\n"),
    ],
)
def test_a_jsonpath_finds_a_value(sandbox: CommandSandbox, words: str, shown: str) -> None:
    result = sandbox.run(*words.split())
    assert (result.code, result.out, result.err) == (0, shown, "")


def test_the_nearest_name_is_known_where_a_path_finds_nothing(sandbox: CommandSandbox) -> None:
    result = sandbox.run("get", "workload", "-o", "jsonpath={.items[*].nmae}")
    assert (result.code, result.out, result.err) == (0, "", "nothing has .items[*].nmae; did you mean name?\n")


def test_one_object_is_shown_where_one_was_asked_for(sandbox: CommandSandbox) -> None:
    sandbox.commit({"ops/gvc.yaml": GVC.replace("shop", "ops"), "ops/web.yaml": workload("web")})
    sandbox.applied()
    assert sandbox.run("get", "workload", "web", "--gvc", "shop", "-o", "json").json["gvc"] == "shop"
    assert sandbox.run("get", "source", "main", "-o", "json").json["name"] == "main"
    several = sandbox.run("get", "workload", "web", "-o", "json").json
    assert [item["gvc"] for item in several["items"]] == ["ops", "shop"]


def test_tables_have_headings_unless_they_are_unwanted(sandbox: CommandSandbox) -> None:
    whole, bare = (sandbox.run("get", "-o", "wide", *more).out for more in ([], ["--no-headers"]))
    heading = "KEY HEALTH READY VERSION AGE SOURCE REVISION LOCATIONS MESSAGE"
    assert whole.splitlines()[0].split() == heading.split()
    assert [line[:40] for line in whole.splitlines()[1:]] == [line[:40] for line in bare.splitlines()]
    assert sandbox.run("get", "sources").out.splitlines()[0].split() == ["SOURCE", "READY", "APPLIED", "AGE", "MESSAGE"]


def test_nothing_that_matches_is_no_error(sandbox: CommandSandbox) -> None:
    assert sandbox.run("get", "-l", "team=none") == (0, "", "nothing matches\n")
    assert sandbox.run("get", "agents") == (0, "", "nothing is recorded\n")
    assert sandbox.run("top", "--limit", "1").err.endswith("nothing matches\n")


def test_an_alias_of_the_option_stays(sandbox: CommandSandbox) -> None:
    for command in ("plan", "diff main main", "validate", "rules", "doctor"):
        one, other = (sandbox.run(*command.split(), option, "json") for option in ("-o", "--format"))
        assert (one.code, one.out.count("\n")) == (other.code, other.out.count("\n"))
        assert one.json is not None


def test_a_plan_names_what_it_changes_once(sandbox: CommandSandbox) -> None:
    sandbox.repo.git("branch", "release", "main")
    sandbox.repo.commit({"shop/late.yaml": workload("late")}, branch="release")
    result = sandbox.run("plan", "--revision", "release", "-o", "name")
    assert (result.code, result.out) == (0, "workload/shop/late\n")
    assert sandbox.run("diff", "main", "release", "-o", "name").out == "workload/shop/late\n"
