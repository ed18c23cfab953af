"""The manual pages of the three commands, made from the commands themselves.

``python -m docs.generate.man_pages DIR`` writes them. They are no part of the tree; a release has them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from docs.generate.roff import (
    Entry,
    escape_text,
    write_example,
    write_list,
    write_paragraphs,
    write_section,
    write_subsection,
    write_synopsis,
    write_title,
)
from reconciler import __version__
from reconciler.cli import GROUPS, cli, read_commands
from reconciler.platform_cli.command_line import all_rows
from reconciler.platform_cli.table.row import COMMON, LISTING, Option, Row

SETTINGS = "/etc/reconciler/settings.yaml"
RECONCILER_FILES = (
    Entry(SETTINGS, "The settings, where neither `--settings` nor `RECONCILER_SETTINGS` names others."),
    Entry("/var/lib/reconciler", "The state directory of the service: records, logs and volumes."),
)
RECONCILER_VARIABLES = (
    Entry("RECONCILER_SETTINGS", "The settings file."),
    Entry("NO_COLOR", "No colours."),
)
PLATFORM_FILES = (
    Entry("~/.config/platform/profiles.json", "The profiles with their tokens."),
    Entry("~/.config/platform/registries.json", "The logins to registries."),
)
PLATFORM_VARIABLES = tuple(
    Entry(f"PLATFORM_{name}", "What the option of this name sets.")
    for name in ("PROFILE", "ORG", "GVC", "TOKEN", "ENDPOINT")
)
PLATFORM_CODES = (
    Entry("0", "Success."),
    Entry("1", "Refused or failed."),
    Entry("2", "The command line is wrong."),
    Entry("130", "Interrupted."),
)
PLATFORM_TEXT = """\
Speaks only the HTTP API of a reconciler: it works on any machine that reaches the daemon, and needs no file of it. On
the host of the daemon, it finds its socket by itself, and root needs no login. Elsewhere, begin with `platform login`.

A reference is a name, a link such as `/org/acme/gvc/shop` or `//workload/web`, or a key such as `workload/shop/web`.
What is in a GVC, and names none, is in that of the call. `<>` is required, `[]` optional, and `...` allows several.
"""
CREDENTIALS = "docker-credential-platform"
CREDENTIALS_TEXT = """\
Keeps logins to registries, for Docker, Podman and other clients of its protocol. They call it; people do not. To use
it for a registry, add `"credHelpers": {"REGISTRY": "platform"}` to `~/.docker/config.json`, or to `auth.json` of
Podman, and log in as usual.
"""


def make_pages() -> dict[str, str]:
    """File name → source of every page."""
    pages = {"reconciler.1": _write_overview(), "platform.1": _write_platform(), f"{CREDENTIALS}.1": _write_helper()}
    for name in read_commands():
        pages[f"reconciler-{name}.1"] = _write_command(name)
    return pages


def _write_page(name: str, line: str, *sections: str) -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%d") if epoch else ""
    about = write_paragraphs(f"{name} - {line[:1].lower()}{line[1:].rstrip('.')}").removeprefix(".PP\n")
    return write_title(name, day, __version__) + write_section("name", about) + "".join(sections)


def _write_overview() -> str:
    lines = read_commands()
    groups = (
        write_subsection(title, write_list(Entry(name, lines[name]) for name in names))
        for title, names in GROUPS.items()
    )
    return _write_page(
        "reconciler",
        "A GitOps daemon, and the commands of its operators",
        write_section("synopsis", write_synopsis(["reconciler [--settings FILE] COMMAND [OPTIONS] [ARGUMENTS]"])),
        write_section("description", write_paragraphs(cli.help or "")),
        write_section("commands", "".join(groups)),
        write_section("files", write_list(RECONCILER_FILES)),
        write_section("environment", write_list(RECONCILER_VARIABLES)),
        write_section("examples", _write_epilog(cli)),
        _write_see_also([f"reconciler-{name}" for name in lines]),
    )


def _write_command(name: str) -> str:
    about = cli.get_command(click.Context(cli), name)
    assert about is not None
    below = about.commands if isinstance(about, click.Group) else {}
    parts = (
        write_subsection(
            f"{name} {word}",
            write_synopsis([_join_usage(f"{name} {word}", each)])
            + write_paragraphs(each.help or "")
            + write_list(_list_options(each))
            + _write_epilog(each),
        )
        for word, each in sorted(below.items())
    )
    return _write_page(
        f"reconciler-{name}",
        read_commands()[name],
        write_section("synopsis", write_synopsis([_join_usage(name, about)])),
        write_section("description", write_paragraphs(about.help or "")),
        write_section("options", write_list(_list_options(about))),
        write_section("commands", "".join(parts)),
        write_section("examples", _write_epilog(about)),
        _write_see_also(["reconciler"]),
    )


def _join_usage(name: str, about: click.Command) -> str:
    return " ".join(["reconciler", name, *about.collect_usage_pieces(_make_context(about))])


def _list_options(about: click.Command) -> Iterator[Entry]:
    """The options of a command, in the words of its help."""
    context = _make_context(about)
    for option in about.get_params(context):
        record = option.get_help_record(context)
        if isinstance(option, click.Option) and record:
            yield Entry(*record)


def _make_context(about: click.Command) -> click.Context:
    """As if the command were called: `-h` is one of its options then, as everywhere."""
    return click.Context(about, parent=click.Context(cli, **cli.context_settings))


def _write_epilog(about: click.Command) -> str:
    return write_example(str(about.epilog).removeprefix("Example: ")) if about.epilog else ""


def _write_see_also(names: Iterable[str]) -> str:
    return write_section("see also", ",\n".join(f"\\fB{escape_text(name)}\\fR(1)" for name in names) + "\n")


def _write_platform() -> str:
    rows = all_rows()
    words = sorted({row.words[0] for row in rows})
    parts = (
        write_subsection(word, "".join(write_list(map(_describe_row, (row for row in rows if row.words[0] == word)))))
        for word in words
    )
    return _write_page(
        "platform",
        "Use the API of a reconciler, from any machine",
        write_section("synopsis", write_synopsis(["platform COMMAND [OPTIONS] [ARGUMENTS]"])),
        write_section("description", write_paragraphs(PLATFORM_TEXT)),
        write_section("options", write_list(map(_describe_option, COMMON))),
        write_section("options of lists", write_list(map(_describe_option, LISTING))),
        write_section("commands", "".join(parts)),
        write_section("exit status", write_list(PLATFORM_CODES)),
        write_section("files", write_list(PLATFORM_FILES)),
        write_section("environment", write_list(PLATFORM_VARIABLES)),
        _write_see_also(["reconciler", CREDENTIALS]),
    )


def _describe_row(row: Row) -> Entry:
    names = "/".join((row.words[-1], *row.aliases))
    term = " ".join(filter(None, (*row.words[:-1], names, row.argument)))
    if row.instead:
        return Entry(term, f"Not available: {row.instead}.")
    lists = ["It has the options of lists."] if row.lists else []
    return Entry(term, " ".join([row.own_help, *(_quote_option(option) for option in row.options), *lists]))


def _quote_option(option: Option) -> str:
    """An option within a line of text: its names, and its own line."""
    return f"`{_join_names(option)}`: {option.help}"


def _describe_option(option: Option) -> Entry:
    return Entry(_join_names(option), option.help)


def _join_names(option: Option) -> str:
    value = "|".join((*option.choices, *option.more_choices)) or ("" if option.flag else option.metavar)
    names = ", ".join((*option.also, *option.names.split("/")))
    return " ".join(filter(None, (names, value)))


def _write_helper() -> str:
    return _write_page(
        CREDENTIALS,
        "Keep logins to registries",
        write_section("synopsis", write_synopsis([f"{CREDENTIALS} get|store|erase|list|version"])),
        write_section("description", write_paragraphs(CREDENTIALS_TEXT)),
        write_section("files", write_list(PLATFORM_FILES[1:])),
        _write_see_also(["platform"]),
    )


def main() -> None:
    """Write every page into the directory that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m docs.generate.man_pages DIR")
    for name, text in make_pages().items():
        Path(sys.argv[1], name).write_text(re.sub(r"\n\n+", "\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
