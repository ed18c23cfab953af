"""Options that are durations: one form for all commands, and the same errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from reconciler.cli import cli
from reconciler.cli.options import Duration
from reconciler.errors import UsageError
from reconciler.platform_cli.durations import parse_length
from reconciler.times import DURATIONS
from tests.support.command_sandbox import CommandSandbox, here

FORMS = "is not a duration such as 500ms, 20s or 1h30m, or a number of seconds"
TIMED = (
    ("apply", "--timeout"),
    ("top", "--interval"),
    *((name, "--interval") for name in ("status", "get", "history", "versions", "blame", "snapshots", "notifications")),
    ("notify list", "--interval"),
    ("describe", "--interval", "web"),
    ("usage", "--interval", "web"),
    ("status", "--timeout"),
    ("up", "--timeout"),
    ("command", "--timeout", "workload/shop/api", "cron"),
    ("hold", "--for", "workload/shop/api"),
)


def options(command: click.Command, name: str) -> Iterator[tuple[str, click.Parameter]]:
    """The options of ``command`` and of the commands below it, each with the words before it."""
    for each in command.params:
        yield f"{name} {each.opts[-1]}", each
    if isinstance(command, click.Group):
        for word in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), word)
            assert below is not None
            yield from options(below, f"{name} {word}")


def test_no_option_is_a_bare_number_with_a_fraction() -> None:
    parameters = dict(options(cli, "reconciler"))
    fractions = (click.types.FloatParamType, click.FloatRange)
    assert [name for name, each in parameters.items() if isinstance(each.type, fractions)] == []
    assert sum(isinstance(each.type, Duration) for each in parameters.values()) == len(TIMED)


@pytest.mark.parametrize("words", TIMED, ids=" ".join)
@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1 s", ""])
def test_a_text_that_is_no_duration_is_refused_with_the_forms(
    tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    command, option, *rest = words
    ended = here(*command.split(), option, text, *rest, cwd=tmp_path)
    assert ended.code == 2
    assert f"invalid value for '{option}': {text!r} {FORMS}" in ended.err


@pytest.mark.parametrize("text", ["20s", "20", "1.5h", "500ms"])
def test_an_apply_waits_for_a_duration_or_for_seconds(tmp_path: Path, text: str) -> None:
    assert CommandSandbox(tmp_path).run("apply", "--timeout", text).code == 0


def test_a_refresh_is_not_more_frequent_than_ten_a_second(tmp_path: Path) -> None:
    assert "'50ms' is too short; write at least 0.1s" in here("top", "--interval", "50ms", cwd=tmp_path).err


@pytest.mark.parametrize("text", ["999999999999d", "9" * 400])
def test_a_suspension_cannot_end_beyond_the_last_year(tmp_path: Path, text: str) -> None:
    ended = here("suspend", "main", "--until", text, cwd=tmp_path)
    assert ended.code == 2
    assert "write a time such as 2026-01-31T12:00:00Z" in ended.err


def test_the_platform_command_takes_the_same_forms() -> None:
    assert [parse_length(text, "--for") for text in ("500ms", "20s", "20", "1.5h")] == [0.5, 20.0, 20.0, 5400.0]
    with pytest.raises(UsageError, match=f"--for soon: write {DURATIONS}"):
        parse_length("soon", "--for")
