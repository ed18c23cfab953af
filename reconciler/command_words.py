"""The commands that `reconciler` and `platform` both have: their lines of help, examples and options, for both."""

from __future__ import annotations

from typing import NamedTuple


class SharedOption(NamedTuple):
    """An option: its ``spellings``, a sentence, and what a value is called; a flag has no ``metavar``.

    ``default`` is what counts without it, "" if that is nothing.
    """

    spellings: tuple[str, ...]
    text: str
    metavar: str = ""
    default: str = ""

    @property
    def help(self) -> str:
        """The sentence, with the default: ``How many; 30.``"""
        return f"{self.text.removesuffix('.')}; {self.default}." if self.default else self.text


class SharedCommand(NamedTuple):
    """A command: its ``name``, its line in lists of commands, and the words and options that an example has."""

    name: str
    line: str
    example: str
    options: tuple[SharedOption, ...] = ()

    def call(self, program: str) -> str:
        """A call of the command of ``program``, as an example."""
        return f"{program} {self.name} {self.example}"

    def option(self, spelling: str) -> SharedOption:
        """The option with this ``spelling``, such as ``--reason``."""
        return next(option for option in self.options if spelling in option.spellings)


SELECTOR = SharedOption(("-l", "--selector"), "By tags: k=v, k!=v, k, !k, 'k in (a,b)'.", "S")
SORT = SharedOption(("--sort-by",), "By a field of the JSON, as .name; - before it: backwards.", "F")
SINCE = SharedOption(("--since",), "Only those since 20s, 1h30m, or a time.", "T")
NO_HEADERS = SharedOption(("--no-headers",), "Leave the line of headings out.")
WATCH = SharedOption(("-w", "--watch"), "Show it again when it changes, until q or Ctrl-C.")
"""Options of commands that list something."""

_REASON = SharedOption(("--reason",), "The reason, which others will read.", "TEXT")
_COMMITS = SharedOption(("--commits",), "How many commits of the source are searched.", "N", "2000")
_COUNTED = ("--limit", "--last")

_COMMANDS = (
    SharedCommand("approve", "Approve the deletes of a plan, or a rewritten history.", "3f6c0b52d1e9"),
    SharedCommand("blame", "Show who wrote each field of a resource.", "workload/shop/api", (_COMMITS,)),
    SharedCommand("describe", "Show one resource or source in detail.", "workload/shop/api"),
    SharedCommand("drift", "Show what differs at a location from what was applied.", "workload/shop/api"),
    SharedCommand(
        "events",
        "Show events of resources and sources.",
        "workload/shop/api --follow",
        (
            SharedOption(("-f", "--follow", "-w", "--watch"), "Also show new events as they come."),
            SharedOption(_COUNTED, "How many past events.", "N", "100"),
            SINCE,
        ),
    ),
    SharedCommand("history", "Show past runs.", "main --last 20", (SharedOption(_COUNTED, "How many.", "N", "30"),)),
    SharedCommand(
        "hold",
        "Make the requests of a workload wait.",
        "workload/shop/api --for 60s --reason 'database migration'",
        (
            SharedOption(("--for",), "How long, at most 1h: 60s, 5m.", "TIME"),
            _REASON,
            SharedOption(("--release",), "End the hold now."),
        ),
    ),
    SharedCommand(
        "plan",
        "Show what a run would change.",
        "--revision feature --format markdown",
        (SharedOption(("--detailed-exitcode",), "Exit with 3 if there is something to do."),),
    ),
    SharedCommand(
        "refuse",
        "Refuse the deletes of a plan, with a reason.",
        "3f6c0b52d1e9 --reason 'the data is still needed'",
        (_REASON,),
    ),
    SharedCommand("restart", "Replace the replicas of a workload.", "workload/shop/api"),
    SharedCommand("resume", "End a suspension or a rollback.", "workload/shop/api"),
    SharedCommand("retry", "Retry failed steps at once.", "workload/shop/api"),
    SharedCommand(
        "rollback",
        "Roll a source or a resource back to an older revision.",
        "workload/shop/api 4f2a91c0 --dry-run",
        (
            SharedOption(("--previous",), "Roll back to what was applied before."),
            SharedOption(("--dry-run",), "Show the plan of a resource; change nothing."),
            SharedOption(("--force",), "Accept a revision that the source never followed."),
            _REASON,
        ),
    ),
    SharedCommand(
        "snapshots",
        "List the snapshots of volumes.",
        "volumeset/shop/data",
        (SharedOption(("--deleted",), "The final snapshots of deleted volumes instead."),),
    ),
    SharedCommand(
        "suspend",
        "Suspend a source or a resource.",
        "workload/shop/api --reason debugging --until 2h",
        (_REASON, SharedOption(("--until",), "A time such as 2026-01-31T12:00Z, or how long: 2h.", "WHEN")),
    ),
    SharedCommand("sync", "Make the daemon run its sources now.", "main"),
    SharedCommand("top", "Show the replicas of workloads, and what they use.", "--gvc shop"),
    SharedCommand("versions", "List the versions of a resource in Git.", "workload/shop/api", (_COMMITS,)),
)
SHARED_COMMANDS = {command.name: command for command in _COMMANDS}
"""Name → command. `status` is none: `platform status` lists what `reconciler get` does."""
