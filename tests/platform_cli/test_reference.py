"""The page that describes the words of the platform's command line, against the table: each row of it is there."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from reconciler import __version__
from reconciler.platform_cli.command_line import RowCommand, all_rows
from reconciler.platform_cli.main import run_command_line
from reconciler.platform_cli.table.examples import EXAMPLES, NAMES, example_of
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.platform_cli.table.program_rows import WORD_ALIASES
from reconciler.platform_cli.table.row import COMMON, Option
from tests.support.processes import ROOT

PAGE = (ROOT / "docs" / "platform" / "cli.md").read_text()
SECTIONS = {
    "Agent": "agent",
    "Cloud account": "cloudaccount",
    "Group": "group",
    "GVC": "gvc",
    "Workload": "workload cron start",
    "Apply": "apply",
    "Convert": "convert",
    "Query": "agent query",
}
"""Sections with a table of commands or of options, and the words that they are about."""
SIZES = {
    "Commands": 30,
    "Common options": 12,
    "Common subcommands": 13,
    "Query": 4,
    "Agent": 4,
    "Cloud account": 4,
    "Group": 3,
    "GVC": 5,
    "Workload": 3,
    "Apply": 4,
    "Convert": 3,
}
"""How many commands or options the platform describes in each section; a row less would be one that no test has."""
PROSE = {
    "Audit context": ("auditctx create", {"--name", "--description", "--tag"}),
    "Domain": ("domain create", {"--name", "--description", "--tag"}),
    "Clone": ("group clone", {"--name", "--description", "--tag"}),
    "Update": ("group update", {"--set"}),
    "Delete": ("delete", {"--file", "-f", "--k8s", "--org", "--gvc"}),
}
"""Sections that name the options of a command in sentences."""
SHARED = ("agent", "auditctx", "cloudaccount", "domain", "group", "gvc")
ROWS = {row.words: row for row in all_rows()}


class Line(NamedTuple):
    """A row of a table of the page: its cells; ``title`` is the heading of the first one."""

    section: str
    title: str
    cells: tuple[str, ...]


def lines() -> Iterator[Line]:
    """The rows of all tables, without headings."""
    section = title = ""
    for text in PAGE.splitlines():
        cells = tuple(cell.strip() for cell in text.strip("|").split("|"))
        if text.startswith("#"):
            section = text.lstrip("# ")
        elif text.startswith("| `"):
            yield Line(section, title, cells)
        elif text.startswith("|") and not text.startswith("| --"):
            title = cells[0]


def words_in(cell: str, pattern: str) -> list[str]:
    """What stands in code marks of ``cell`` and begins with ``pattern``."""
    return [found for found in re.findall(r"`([^`]+)`", cell) if re.match(pattern, found)]


def option_of(words: tuple[str, ...], name: str) -> Option | None:
    """The option ``name`` of a command; None if it has none, or is not available as a whole."""
    options = (*ROWS[words].options, *COMMON)
    return next((each for each in options if name in each.names.split("/")), None)


def test_every_command_of_the_page_exists_with_its_alias() -> None:
    count = 0
    for cells in (line.cells for line in lines() if line.section == "Commands"):
        word = words_in(cells[0], "[a-z]")[0].split()[0]
        assert any(words[0] == word for words in ROWS), word
        of_row = ROWS[next(each for each in ROWS if each[0] == word)].aliases
        aliases = KINDS[word].aliases if word in KINDS else WORD_ALIASES.get(word, of_row)
        assert list(aliases) == words_in(cells[1], "[a-z]"), word
        count += 1
    assert count == 30


def test_every_common_option_of_the_page_exists_with_its_values() -> None:
    found = [line.cells for line in lines() if line.section == "Common options"]
    assert [words_in(cells[0], "--")[0] for cells in found] == [each.names.split("/")[-1] for each in COMMON]
    for cells, option in zip(found, COMMON, strict=True):
        assert words_in(cells[1], "-") == [each for each in option.names.split("/") if not each.startswith("--")]
        values = words_in(cells[2], "[a-z]")
        assert not option.choices or [*option.choices] == values, option.names
        assert option.flag == ("boolean" in cells[2]), option.names


def test_the_shared_subcommands_of_the_page_exist_or_name_another_way() -> None:
    mine = [line for line in lines() if line.section == "Common subcommands"]
    texts = [words_in(line.cells[0], "[a-z]")[0] for line in mine if line.title == "Subcommand"]
    lacking = {
        words_in(line.cells[0], "[a-z]")[0]: [
            kind for kind, cell in zip(SHARED, line.cells[1:], strict=True) if cell == "no"
        ]
        for line in mine
        if line.title != "Subcommand"
    }
    assert lacking == {"clone": ["agent", "cloudaccount", "domain"], "update": ["cloudaccount", "domain"]}
    for text in texts:
        name, _, argument = text.partition(" ")
        for kind in SHARED:
            row = ROWS[kind, name]
            assert bool(row.instead) == (kind in lacking.get(name, ())), row
            assert row.instead or row.argument == argument.partition(" --")[0], row


def test_no_row_of_the_page_is_missing() -> None:
    about = ("Command", "Option", "Subcommand", "")
    assert Counter(line.section for line in lines() if line.title in about) == SIZES


@pytest.mark.parametrize("section", PROSE)
def test_every_option_in_a_sentence_exists_in_its_command(section: str) -> None:
    words, names = PROSE[section]
    text = re.split(r"(?m)^#+ ", PAGE.partition(f"# {section}\n")[2])[0]
    assert {*words_in(text, "--?[a-z]")} == names
    assert all(option_of(tuple(words.split()), name) for name in names)


def test_every_option_of_a_section_exists_in_its_command() -> None:
    count = 0
    for section, title, cells in lines():
        if section not in SECTIONS or title not in ("Command", "Option"):
            continue
        about = tuple(SECTIONS[section].split())
        names = words_in(cells[0], "-")
        words = about if names else (*about, words_in(cells[0], "[a-z]")[0].split()[0])
        listed = names or words_in(cells[-1], "-")
        assert words in ROWS, (section, words)
        for name in listed if not ROWS[words].instead else ():
            option = option_of(words, name.split()[0])
            assert option is not None, (words, name)
            if f"`{name}` (required" in "|".join(cells):
                assert option.required, (words, name)
            count += 1
    assert count == 71


def test_every_command_takes_its_example() -> None:
    for row in (each for each in ROWS.values() if not each.instead):
        shown = example_of(row)
        words = shlex.split(re.split(" [<>|] ", shown)[0])
        begin = 1 + len(row.words)
        assert words[:begin] == ["platform", *row.words]
        RowCommand(row.words[-1], row).make_context("example", words[begin:])
    assert {*EXAMPLES} <= {" ".join(words) for words in ROWS}
    assert NAMES.keys() == KINDS.keys()


def test_every_help_has_what_its_row_has(capsys: pytest.CaptureFixture[str]) -> None:
    for row in ROWS.values():
        assert run_command_line([*row.words, "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert row.own_help in shown
        if row.instead:
            assert shown.endswith(f"Not available here: {row.instead}")
            continue
        assert shown.endswith(f"Example: {example_of(row)}")
        own, common = shown.index("Options: ") if row.options else 0, shown.index("Options of every command: ")
        names = [each.names.split("/")[-1] for each in row.options]
        assert all(own < shown.index(f"{name} ") < common for name in names)
    for words in {each[:end] for each in ROWS for end in range(1, len(each))}:
        assert run_command_line([*words, "--help"]) == 0
        assert re.match(r"Usage: .+\n\n  [A-Z].+\.\n", capsys.readouterr().out), words


def test_where_nothing_is_available_every_word_has_advice(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("mk8s get", "helm template chart --values x.yaml", "task create --name x"):
        assert run_command_line(words.split()) == 1
        assert f"`platform {' '.join(words.split()[:2])}` is not available: " in capsys.readouterr().err


def test_every_command_of_the_page_but_three_is_available() -> None:
    words = {words_in(line.cells[0], "[a-z]")[0].split()[0] for line in lines() if line.section == "Commands"}
    rows = {word: [row for row in ROWS.values() if row.words[0] == word] for word in words}
    assert {word for word, found in rows.items() if all(row.instead for row in found)} == {"helm", "mk8s", "task"}


def test_the_version_is_printed_behind_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("workload",), ("volumeset", "snapshot"), ("workload", "get"), ("apply",)):
        assert run_command_line([*words, "--version"]) == 0
        assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("get", "workload get"),
        ("add-member", "group add-member"),
        ("wrkload", "workload"),
        ("sceret get", "secret"),
        ("workload gett", "get"),
        ("compos manifest", "compose"),
        ("volumeset snapshots get", "snapshot"),
        ("snapshot create", "volumeset snapshot"),
    ],
)
def test_a_word_that_is_none_names_the_nearest(words: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(words.split()) == 2
    assert f"; did you mean {near}?" in capsys.readouterr().err


def test_a_required_option_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Each alone: the others have values. Nothing else is asked for first."""
    for row in (row for row in ROWS.values() if not row.instead):
        required = [option for option in row.options if option.required]
        for missing in required:
            words = [f"{option.names.split('/')[-1]}=x" for option in required if option is not missing]
            assert run_command_line([*row.words, *("x" for _ in re.findall("<", row.argument)), *words]) == 2
            assert f"missing option '{missing.names.split('/')[0]}'" in capsys.readouterr().err, row.words
