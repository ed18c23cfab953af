"""One grammar for `platform`, too: every command × what can be mistyped in it has the same exit codes and hints.

The commands come from the table that also makes help, completion, the manual page and the page of the reference.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

import pytest
import yaml

from docs.generate.man_pages import make_pages
from docs.generate.platform_command import page
from reconciler.platform_cli.command_line import RowCommand, all_rows, make_program
from reconciler.platform_cli.main import run_command_line
from reconciler.platform_cli.table.row import COMMON, FORMATS, LISTING, MORE_FORMATS, Option, Row
from tests.platform_cli.kit import PlatformHarness, harness
from tests.support.command_sandbox import workload
from tests.support.terminal import terminal

ROWS = [*{(row.run, row.words[-1]): row for row in all_rows() if not row.instead}.values()]
"""Each command once: kinds share most."""
GVC = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
FILES = {
    "shop/gvc.yaml": GVC,
    "shop/api.yaml": workload(),
    "shop/web.yaml": workload("web", more="tags: {team: front}\n"),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformHarness]:
    """A daemon that has applied two workloads."""
    locations = {"here": {"engine": "recorded"}}
    with harness(tmp_path_factory.mktemp("grammar"), FILES, locations=locations) as shop:
        shop.environ |= {"PLATFORM_GVC": "shop"}
        yield shop


def name_row(row: Row) -> str:
    """The words of a command."""
    return " ".join(row.words)


def misspell(word: str) -> str:
    """``word`` without a letter in its middle."""
    middle = len(word) // 2
    return word[:middle] + word[middle + 1 :]


def list_options(row: Row) -> list[Option]:
    """The options of a command, those of lists and of every command, too."""
    return [*row.options, *(LISTING if row.lists else ()), *COMMON]


def refuse(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """The error of ``words``, which print nothing else."""
    assert run_command_line([*words]) == code, words
    printed = capsys.readouterr()
    assert printed.out == "", words
    return printed.err


@pytest.mark.parametrize("row", ROWS, ids=name_row)
def test_what_is_mistyped_is_wrong_use_that_names_the_right_one(row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    spellings = {text for option in list_options(row) for text in (*option.also, *option.names.split("/"))}
    for option in (*row.options, *(LISTING if row.lists else ())):
        long = option.names.split("/")[-1]
        wrong = misspell(long)
        if not any(text.startswith(wrong) for text in spellings):
            assert f"there is no option {wrong!r}; did you mean --" in refuse(capsys, *row.words, wrong)
        if not option.flag:
            assert "requires an argument" in refuse(capsys, *row.words, long)
        if option.choices:
            assert "nonsense" in refuse(capsys, *row.words, long, "nonsense")
    if row.words[1:] and len(row.words[-1]) > 3:
        wrong = misspell(row.words[-1])
        assert f"there is no command {wrong!r} of `" in refuse(capsys, *row.words[:-1], wrong)
    if "<" in row.argument:
        assert "missing argument" in refuse(capsys, *row.words)


@pytest.mark.parametrize("row", ROWS, ids=name_row)
def test_options_of_every_command_stand_before_it_and_behind_it(row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    typed: list[str] = []
    for option in COMMON:
        value = [] if option.flag else [option.choices[0] if option.choices else "5"]
        typed += [option.names.split("/")[-1], *value]
    helps = []
    for words in ([*typed, *row.words], [*row.words, *typed]):
        assert run_command_line([*words, "--help"]) == 0, words
        helps.append(capsys.readouterr())
    assert helps[0] == helps[1]
    assert helps[0].err == ""


@pytest.mark.parametrize(("word", "meant"), [("version", "--version"), ("completion", "misc install-completion")])
def test_a_word_of_other_tools_names_what_does_the_same(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = f"error: there is no command '{word}'; here it is `platform {meant}`"
    assert expected in refuse(capsys, word)
    assert run_command_line([*meant.split(), *([] if meant.startswith("-") else ["--help"])]) == 0


def test_a_form_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    for form, why in (
        ("jsn", "there is no form 'jsn'; did you mean json?"),
        ("jsonpath", "write a path after jsonpath="),
        ("jsonpath={.a", "has a brace without its other half"),
        ("name=1", "there is no form 'name=1'"),
    ):
        assert why in refuse(capsys, "workload", "get", "-o", form)


def test_help_completion_manual_and_page_have_the_same_commands_and_options() -> None:
    parent = make_program().make_context("platform", [], resilient_parsing=True)
    reference = page()
    manual = make_pages()["platform.1"].replace("\\-", "-")
    for row in ROWS:
        command = RowCommand(row.words[-1], row)
        own = {
            text for option in list_options(row)[: -len(COMMON)] for text in (*option.also, *option.names.split("/"))
        }
        common = {text for option in COMMON for text in (*option.also, *option.names.split("/"))}
        typed = {text for param in command.params for text in param.opts if text.startswith("-")}
        assert own <= typed <= own | common | {"--version"}
        assert f"`{name_row(row)}" in reference
        assert name_row(row) in manual
        shown = command.get_help(command.make_context(row.words[-1], [], parent, resilient_parsing=True))
        assert typed <= {*re.findall(r"--?[a-z][-a-z0-9]*", shown)}, name_row(row)
    for option in (*COMMON, *LISTING):
        assert f"`{option.names.split('/')[-1]}`" in reference


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("workload get -o name", "workload/shop/api\nworkload/shop/web\n"),
        ("workload get api -o name", "workload/shop/api\n"),
        ("workload get workload/api -o name", "workload/shop/api\n"),
        ("workload get wl/shop/api -o name", "workload/shop/api\n"),
        ("workload get //gvc/shop/workload/api -o name", "workload/shop/api\n"),
        ("workload get -l team=front -o name", "workload/shop/web\n"),
        ("workload get -l !team -o name", "workload/shop/api\n"),
        ("workload get --sort-by -.name -o name", "workload/shop/web\nworkload/shop/api\n"),
        ("workload get -l team=front --limit 1 -o name", "workload/shop/web\n"),
        ("workload get --sort-by -.name --max 1 -o name", "workload/shop/web\n"),
        ("workload get --since 2126-01-31T12:00:00Z -o name", ""),
        ("workload get --limit 1 -o jsonpath={.items[*].name}", "api\n"),
        ("workload get web -o jsonpath={.tags.team}", "front\n"),
        ("workload get -o jsonpath={.items[*].name}", "api web\n"),
        ("gvc get -o jsonpath={.items[0].kind}", "gvc\n"),
    ],
)
def test_lists_are_chosen_from_and_shown_as_by_the_other_command(
    shop: PlatformHarness, command: str, printed: str
) -> None:
    done = shop.run(*command.split())
    assert (done.returncode, done.stdout) == (0, printed), done


@pytest.mark.parametrize(
    "target",
    ["workload/api", "workload/shop/api", "workload api", "wl api", "workloads/api", "//gvc/shop/workload/api"],
)
def test_a_thing_is_named_in_each_way(shop: PlatformHarness, target: str) -> None:
    for command in ("describe", "events", "drift"):
        done = shop.run(command, *target.split())
        assert done.returncode == 0, done
    assert shop.run("describe", *target.split()).stdout.startswith("workload/shop/api\n")
    assert shop.run("restart", *target.split(), "--gvc", "none").returncode == (1 if "shop" not in target else 0)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("describe worklaod/shop/api", 2, "there is no kind 'worklaod'; did you mean workload?"),
        ("describe workload/shop/apo", 1, "did you mean workload/shop/api?"),
        ("workload get apo", 1, "did you mean 'api'?"),
        ("workload get -l a==b==c", 2, "is no selector of tags"),
        ("workload get --sort-by .nmae", 2, "nothing has .nmae; did you mean name?"),
        ("workload get --since yesterday", 2, "write a time such as 2026-01-31T12:00:00Z"),
        ("events --since yesterday", 2, "write a time such as 2026-01-31T12:00:00Z"),
    ],
)
def test_what_is_not_there_exits_with_1_and_what_is_mistyped_with_2(
    shop: PlatformHarness, words: str, code: int, message: str
) -> None:
    done = shop.run(*words.split())
    assert (done.returncode, done.stdout) == (code, ""), done
    assert message in done.stderr


def test_the_forms_of_a_list_have_the_same_entries(shop: PlatformHarness) -> None:
    for command in ("workload get", "history", "workload permissions", "status"):
        in_json, in_yaml = (shop.run(*command.split(), "-o", form) for form in ("json", "yaml"))
        assert (in_json.returncode, in_yaml.returncode) == (0, 0)
        items = json.loads(in_json.stdout)["items"]
        found = [*yaml.safe_load_all(in_yaml.stdout)]
        assert len(items) == len(found[0].get("items", found))
    for form in (*FORMATS, *(form for form in MORE_FORMATS if "=" not in form)):
        assert shop.run("workload", "get", "-o", form).returncode == 0, form


def test_headings_can_be_left_out_and_cells_are_whole_in_wide(shop: PlatformHarness) -> None:
    for command in ("workload get", "history", "status"):
        whole, bare = (shop.run(*command.split(), *more).stdout for more in ([], ["--no-headers"]))
        listed, shown = ([re.sub(r" +\d+[smhd]\S*", "", line) for line in text.splitlines()] for text in (whole, bare))
        assert listed[1:] == shown, command
    assert "…" not in shop.run("workload", "permissions", "-o", "wide").stdout


def test_a_list_is_watched_on_a_narrow_terminal_until_an_interrupt(shop: PlatformHarness) -> None:
    program = [sys.executable, "-m", "reconciler.platform_cli", "workload", "get", "--watch"]
    with terminal(program, {**shop.environ, "TERM": "xterm"}, 60, controlling=True) as watching:
        screen = watching.until(lambda screen: "web " in screen, "the workloads")
        assert max(map(len, screen.splitlines())) <= 60
        watching.interrupt()
        assert "Traceback" not in watching.ended()
        assert watching.process.returncode == 130
