"""The rows of what operators do from anywhere: the same words as the commands of `reconciler` on the host."""

from __future__ import annotations

from typing import Any

from reconciler.command_words import SHARED_COMMANDS
from reconciler.platform_cli.table.row import Option, Row, share_option

SCALE = (
    Option("--min", "The least replicas at each location.", "NUMBER"),
    Option("--max", "The most replicas at each location.", "NUMBER"),
)


def _share(name: str, run: str, argument: str = "", options: tuple[Option, ...] = (), **more: Any) -> Row:
    """The row of a command that `reconciler` has, too."""
    return Row((name,), SHARED_COMMANDS[name].line, run, argument, options, **more)


def _option(name: str, spelling: str, names: str = "") -> Option:
    """An option of such a command."""
    return share_option(SHARED_COMMANDS[name].option(spelling), names)


OPERATOR_ROWS = (
    _share(
        "approve",
        "operating:approve",
        "<digest>",
        help="Approve the steps of a plan that wait, by its digest or the first characters of it.",
    ),
    _share("blame", "operating:show_blame", "<target>", (_option("blame", "--commits"),)),
    _share("describe", "operating:describe", "<target>"),
    _share("drift", "operating:show_drift", "[target]", lists=True),
    _share(
        "events",
        "operating:show_events",
        "[target]",
        (
            _option("events", "--follow", "-f/--follow"),
            _option("events", "--since"),
            _option("events", "--last", "--last"),
        ),
        help="Show the events of all resources and sources, or of one, oldest first.",
    ),
    _share(
        "history",
        "operating:show_history",
        "[source]",
        (_option("history", "--last", "--last"),),
        lists=True,
        help="Show the runs that changed something or failed, and the newest commit.",
    ),
    _share(
        "hold",
        "operating:hold",
        "<target>",
        (_option("hold", "--for"), _option("hold", "--reason"), _option("hold", "--release")),
        help="Make new requests to a workload wait, and release them.",
    ),
    _share(
        "plan",
        "operating:plan",
        "[source]",
        (
            Option("--revision", "Another revision: a commit, branch or tag.", "REV"),
            Option("--digest", "The current plan with this digest, which an approver is asked for.", "DIGEST"),
            Option("--format", "How to show it.", choices=("text", "markdown"), default="text"),
            _option("plan", "--detailed-exitcode"),
        ),
        help="Show what a run would change, of a source or of all. Changes nothing.",
    ),
    _share(
        "refuse",
        "operating:refuse",
        "<digest>",
        (_option("refuse", "--reason"),),
        help="Refuse the steps of a plan that wait, by its digest or the first characters of it.",
    ),
    _share("restart", "placing:force_redeployment", "<ref>", passed=("workload",)),
    _share(
        "resume",
        "operating:resume",
        "<target>",
        help="End a suspension or a rollback of a source, or the suspension of a resource.",
    ),
    _share("retry", "operating:retry", "<target>"),
    _share(
        "rollback",
        "operating:roll_back",
        "<target> [revision]",
        tuple(_option("rollback", spelling) for spelling in ("--previous", "--force", "--dry-run", "--reason")),
        help="Roll a source back to an older revision until it is resumed, or the manifest of a resource by a commit.",
    ),
    Row(
        ("scale",),
        "Set how many replicas a workload has at each location.",
        "variables:scale",
        "<ref> [replicas]",
        SCALE,
        passed=("workload",),
    ),
    _share(
        "snapshots",
        "operating:show_snapshots",
        "[target]",
        (_option("snapshots", "--deleted"),),
        lists=True,
        help="Show the snapshots of the volumes of all volume sets, or of one.",
    ),
    Row(
        ("status",),
        "List resources and their status.",
        "operating:show_status",
        "[kind] [name]",
        lists=True,
        help="Show the resources with their status, and sources that need attention.",
    ),
    _share(
        "suspend",
        "operating:suspend",
        "<target>",
        (_option("suspend", "--reason"), _option("suspend", "--until")),
        help="Suspend a source or a resource: nothing of it is applied until it is resumed.",
    ),
    _share("sync", "operating:sync", "<source>", help="Make the daemon fetch and run a source now."),
    _share(
        "top", "operating:show_top", lists=True, help="Show the replicas on the host of the daemon, and what they use."
    ),
    _share("versions", "operating:show_versions", "<target>", (_option("versions", "--commits"),)),
)
