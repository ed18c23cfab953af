"""Messages of the daemon name commands of `reconciler`: here they name what works where this command runs."""

from __future__ import annotations

import re

HERE = {
    "approve": "approve",
    "blame": "blame",
    "describe": "describe",
    "drift": "drift",
    "events": "events",
    "get": "status",
    "history": "history",
    "hold": "hold",
    "logs": "logs",
    "plan": "plan",
    "refuse": "refuse",
    "restart": "restart",
    "resume": "resume",
    "retry": "retry",
    "rollback": "rollback",
    "snapshots": "snapshots",
    "suspend": "suspend",
    "sync": "sync",
    "top": "top",
    "versions": "versions",
}
"""Command of `reconciler` → the one of `platform` that takes the same words."""
ON_FILES = frozenset(
    {"completion", "convert", "diff", "explain", "help", "import", "rules", "secret", "validate", "version"}
)
"""Commands of `reconciler` that need no daemon: they work on the files of whoever calls them."""
ON_THE_HOST = frozenset(
    {
        "adopt",
        "apply",
        "backup",
        "command",
        "doctor",
        "down",
        "edit",
        "eject",
        "mute",
        "notify",
        "orphan",
        "page",
        "patch",
        "render",
        "restore",
        "run",
        "status",
        "up",
        "volume",
    }
)
"""Commands of `reconciler` that only the host of the daemon has."""

_COMMAND = re.compile(
    r"(?P<before>^|(?<!of the daemon): |[`'])reconciler (?P<word>[a-z]+)(?P<saved> --out\b)?", re.MULTILINE
)

_OF_API = (
    (
        re.compile(r"(\S+)( is in Git, and not applied yet); its -eventlog has the reason"),
        r"\1\2; see: platform events \1",
    ),
    (re.compile(r"(?<=: )GET (/org/\S+)"), r"platform rest get \1"),
)
"""What messages say to clients of the API, and what it is here."""


def with_local_commands(text: str) -> str:
    """``text`` with the commands of `platform`; one that only the host of the daemon has comes with that place."""
    for words, here in _OF_API:
        text = words.sub(here, text)
    return _COMMAND.sub(_replace_command, text)


def _replace_command(named: re.Match[str]) -> str:
    before, word = named["before"], named["word"]
    # A plan that was saved is for `reconciler apply`, which runs beside the daemon.
    if word in HERE and not named["saved"]:
        return f"{before}platform {HERE[word]}"
    if before == ": " and word not in ON_FILES:
        return f", on the host of the daemon{named[0]}"
    return named[0]
