"""What a command is: a row with its words, options and function. The commands and their reference page come from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from reconciler.command_words import NO_HEADERS, SELECTOR, SINCE, SORT, WATCH, SharedOption


class Option(NamedTuple):
    """An option: ``names`` such as ``-f/--file``. A ``flag`` is a boolean, a ``multiple`` one may be repeated.

    The platform describes its ``choices``; ``more_choices``, and the spellings ``also``, are those of `reconciler`.
    """

    names: str
    help: str
    metavar: str = ""
    default: Any = None
    required: bool = False
    multiple: bool = False
    flag: bool = False
    choices: tuple[str, ...] = ()
    more_choices: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


class Row(NamedTuple):
    """A command: its words, its line of help, its function ``module:name`` below ``commands``, and what it takes.

    ``argument`` is ``<ref>``, ``<ref...>``, ``[ref]`` or ``[ref...]`` in the notation of the reference, or two of them.
    The function gets the session, what is ``passed``, such as the kind, then the arguments and the options by name; it
    returns the exit code if that is not 0. What ``lists`` has the options of lists, too. ``instead`` makes it a command
    that is not available: what to do in place of it. ``help`` says more than the summary, which lists of commands have.
    """

    words: tuple[str, ...]
    summary: str
    run: str = ""
    argument: str = ""
    options: tuple[Option, ...] = ()
    passed: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    instead: str = ""
    lists: bool = False
    help: str = ""

    @property
    def own_help(self) -> str:
        """What the help of the command itself begins with."""
        return self.help or self.summary


FORMATS = ("text", "json", "yaml", "json-slim", "yaml-slim", "tf")
JSONPATH = "jsonpath"
MORE_FORMATS = ("wide", "name", f"{JSONPATH}=PATH")
"""The forms of `reconciler` that the platform does not describe."""

COMMON = (
    Option("--profile", "The profile with the defaults of the other options.", "NAME"),
    Option("--org", "The org.", "ORG"),
    Option("--gvc", "The GVC.", "GVC"),
    Option("-o/--output", "The format of the output; else text.", choices=FORMATS, more_choices=MORE_FORMATS),
    Option("--color", "Colours, on a terminal.", flag=True),
    Option("--ts", "The form of times in text; else iso.", choices=("iso", "local", "age")),
    Option("--max", "The most records of a list; else 50; below 1: all.", "NUMBER", also=("--limit",)),
    Option(
        "--token", "The credential; other users of this machine can see it here, and not in PLATFORM_TOKEN.", "TOKEN"
    ),
    Option("--endpoint", "The address of the API: https://HOST:PORT, or unix:///PATH.", "URL"),
    Option("-k/--insecure", "Accept any certificate.", flag=True),
    Option("-v/--verbose", "Show more, on stderr.", flag=True),
    Option("-d/--debug", "Show all HTTP communication on stderr, without credentials and secret values.", flag=True),
)
"""Options of every command. Those that no flag, variable and profile sets have the defaults of ``Session``."""


def share_option(option: SharedOption, names: str = "") -> Option:
    """The ``option`` of `reconciler` here; ``names`` are those in which it is described, where it has more."""
    described = names or "/".join(option.spellings)
    also = tuple(text for text in option.spellings if text not in described.split("/"))
    is_flag = not option.metavar
    return Option(described, option.text, option.metavar, option.default or None, flag=is_flag, also=also)


LISTING = tuple(map(share_option, (SELECTOR, SORT, SINCE, NO_HEADERS, WATCH)))
"""Options of commands that list something."""

NAME = Option("--name", "The name.", "NAME", required=True)
DESCRIPTION = Option("--description/--desc", "The description; else the name.", "TEXT")
TAG = Option("--tag", "A tag.", "KEY=VALUE", multiple=True)
CREATE = (NAME, DESCRIPTION, TAG)
"""Options of commands that create something."""

LOCATION = Option("--location", "A location.", "NAME")
