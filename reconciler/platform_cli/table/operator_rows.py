"""The rows of what operators do from anywhere: the same words as the commands of `reconciler` on the host."""

from __future__ import annotations

from reconciler.platform_cli.table.row import Option, Row

_REASON = Option("--reason", "The reason, which others will read.", "TEXT")
_LAST = Option("--last", "How many.", "NUMBER", also=("--limit",))
_COMMITS = Option("--commits", "How many commits of the source are searched.", "NUMBER")
SCALE = (
    Option("--min", "The least replicas at each location.", "NUMBER"),
    Option("--max", "The most replicas at each location.", "NUMBER"),
)

OPERATOR_ROWS = (
    Row(
        ("approve",),
        "Approve the steps of a plan that wait, by its digest or the first characters of it.",
        "operating:approve",
        "<digest>",
    ),
    Row(("blame",), "Show who wrote each field of a resource.", "operating:show_blame", "<target>", (_COMMITS,)),
    Row(("describe",), "Describe a resource such as workload/shop/api, or a source.", "operating:describe", "<target>"),
    Row(
        ("drift",),
        "Show what differs at its location from what was applied.",
        "operating:show_drift",
        "[target]",
        lists=True,
    ),
    Row(
        ("events",),
        "Show the events of all resources and sources, or of one, oldest first.",
        "operating:show_events",
        "[target]",
        (
            Option("-f/--follow", "Also show new events as they come.", flag=True, also=("-w", "--watch")),
            Option("--since", "Only those since 20s, 1h30m, or a time.", "TIME"),
            _LAST._replace(help="How many past events.", default="100"),
        ),
    ),
    Row(
        ("history",),
        "Show the runs that changed something or failed, and the newest commit.",
        "operating:show_history",
        "[source]",
        (_LAST._replace(default="30"),),
        lists=True,
    ),
    Row(
        ("hold",),
        "Make new requests to a workload wait, and release them.",
        "operating:hold",
        "<target>",
        (
            Option("--for", "How long, at most 1h: 60s, 5m.", "TIME"),
            _REASON,
            Option("--release", "End the hold now.", flag=True),
        ),
    ),
    Row(
        ("plan",),
        "Show what a run would change, of a source or of all. Changes nothing.",
        "operating:plan",
        "[source]",
        (
            Option("--revision", "Another revision: a commit, branch or tag.", "REV"),
            Option("--digest", "The current plan with this digest, which an approver is asked for.", "DIGEST"),
            Option("--format", "How to show it.", choices=("text", "markdown"), default="text"),
            Option("--detailed-exitcode", "Exit with 3 if there is something to do.", flag=True),
        ),
    ),
    Row(
        ("refuse",),
        "Refuse the steps of a plan that wait, by its digest or the first characters of it.",
        "operating:refuse",
        "<digest>",
        (_REASON,),
    ),
    Row(
        ("restart",), "Replace all replicas of a workload.", "placing:force_redeployment", "<ref>", passed=("workload",)
    ),
    Row(
        ("resume",),
        "End a suspension or a rollback of a source, or the suspension of a resource.",
        "operating:resume",
        "<target>",
    ),
    Row(("retry",), "Retry the failed steps of a resource now.", "operating:retry", "<target>"),
    Row(
        ("rollback",),
        "Roll a source back to an older revision until it is resumed, or the manifest of a resource by a commit.",
        "operating:roll_back",
        "<target> [revision]",
        (
            Option("--previous", "Roll back to the last good revision before the applied one.", flag=True),
            Option("--force", "Accept a revision that the source never followed.", flag=True),
            Option("--dry-run", "Show what would change of a resource; change nothing.", flag=True),
            _REASON,
        ),
    ),
    Row(
        ("scale",),
        "Set how many replicas a workload has at each location.",
        "variables:scale",
        "<ref> [replicas]",
        SCALE,
        passed=("workload",),
    ),
    Row(
        ("snapshots",),
        "Show the snapshots of the volumes of all volume sets, or of one.",
        "operating:show_snapshots",
        "[target]",
        (Option("--deleted", "The final snapshots of deleted volumes.", flag=True),),
        lists=True,
    ),
    Row(
        ("status",),
        "Show the resources with their status, and sources that need attention.",
        "operating:show_status",
        "[kind] [name]",
        lists=True,
    ),
    Row(
        ("suspend",),
        "Suspend a source or a resource: nothing of it is applied until it is resumed.",
        "operating:suspend",
        "<target>",
        (_REASON, Option("--until", "A time such as 2027-01-31T12:00:00Z, or how long: 2h.", "WHEN")),
    ),
    Row(("sync",), "Make the daemon fetch and run a source now.", "operating:sync", "<source>"),
    Row(("versions",), "List the versions of a resource in Git.", "operating:show_versions", "<target>", (_COMMITS,)),
    Row(("top",), "Show the replicas on the host of the daemon, and what they use.", "operating:show_top", lists=True),
)
