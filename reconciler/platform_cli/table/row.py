"""What a command is: a row with its words, options and function. The commands and their reference page come from it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option: ``names`` such as ``-f/--file``. A ``flag`` is a boolean, a ``multiple`` one may be repeated."""

    names: str
    help: str
    metavar: str = ""
    default: Any = None
    required: bool = False
    multiple: bool = False
    flag: bool = False
    choices: tuple[str, ...] = ()


class Row(NamedTuple):
    """A command: its words, its line of help, its function ``module:name`` below ``commands``, and what it takes.

    ``argument`` is ``<ref>``, ``<ref...>``, ``[ref]`` or ``[ref...]`` in the notation of the reference, or two of them.
    The function gets the session, what is ``passed``, such as the kind, then the arguments and the options by name; it
    returns the exit code if that is not 0. ``instead`` makes it a command that is not available: what to do in place
    of it.
    """

    words: tuple[str, ...]
    summary: str
    run: str = ""
    argument: str = ""
    options: tuple[Option, ...] = ()
    passed: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    instead: str = ""


FORMATS = ("text", "json", "yaml", "json-slim", "yaml-slim", "tf")

COMMON = (
    Option("--profile", "The profile with the defaults of the other options.", "NAME"),
    Option("--org", "The org.", "ORG"),
    Option("--gvc", "The GVC.", "GVC"),
    Option("-o/--output", "The format of the output; else text.", choices=FORMATS),
    Option("--color", "Colours, on a terminal.", flag=True),
    Option("--ts", "The form of times in text; else iso.", choices=("iso", "local", "age")),
    Option("--max", "The most records of a list; else 50; below 1: all.", "NUMBER"),
    Option(
        "--token", "The credential; other users of this machine can see it here, and not in PLATFORM_TOKEN.", "TOKEN"
    ),
    Option("--endpoint", "The address of the API: https://HOST:PORT, or unix:///PATH.", "URL"),
    Option("-k/--insecure", "Accept any certificate.", flag=True),
    Option("-v/--verbose", "Show more, on stderr.", flag=True),
    Option("-d/--debug", "Show all HTTP communication on stderr, without credentials and secret values.", flag=True),
)
"""Options of every command. Those that no flag, variable and profile sets have the defaults of ``Session``."""

NAME = Option("--name", "The name.", "NAME", required=True)
DESCRIPTION = Option("--description/--desc", "The description; else the name.", "TEXT")
TAG = Option("--tag", "A tag.", "KEY=VALUE", multiple=True)
CREATE = (NAME, DESCRIPTION, TAG)
"""Options of commands that create something."""

LOCATION = Option("--location", "A location.", "NAME")
