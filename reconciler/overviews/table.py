"""All overviews. The commands for reading, operations of the API, and what readers may run come from this table.

A new one is a row here, the function that reads it, and the one that shows it. `logs` and `plan` have commands and
operations of their own: lines are not redacted and have a permission of their own, and plans have an exit code.
"""

from __future__ import annotations

from reconciler.command_words import SHARED_COMMANDS
from reconciler.overviews import reading, showing
from reconciler.overviews.overview import LAST, Listing, Overview, Parameter, share_parameter

_LAST = ("--limit", "--last")

GET = Overview(
    "get",
    "-status",
    "List resources and their status.",
    """Show the records: all resources, those of KIND, or the one called NAME.

    It shows what was last applied and its last known status; secret data shows as ***. A source in trouble has a line
    on standard error; JSON has all below `sources`. The exit code does not depend on any status.
    """,
    "reconciler get workload api --gvc shop -o yaml",
    "Read the resources with the status of each.",
    (
        Parameter("kind", "kind"),
        Parameter("name"),
        Parameter("gvc", help="Only resources of this GVC.", metavar="G"),
        Parameter("state", "state", "By state: unwell, healthy, loading, unhealthy, unknown, …", "S"),
        Parameter("text", help="Only those whose key has the text T.", metavar="T"),
    ),
    reading.read_status,
    showing.show_status,
    Listing(
        showing.make_status_item,
        "resource",
        extras=showing.make_status_extras,
        read_tags=reading.read_own_tags,
        read_time=reading.read_applied_time,
    ),
    notes=showing.list_troubles,
    notes_path="source",
    nothing="nothing is recorded",
)
STATUS = Overview(
    "status",
    "-summary",
    "Show whether all is live and well, and if not, why.",
    """Show what each source follows, applied and refused, what is not well and why, and what waits for whom.

    Of all sources, or of TARGET: a source, a resource, or a commit (the first characters of its id, or HEAD of the
    repository here). Exits with 0 where all is well, 1 where not, 3 where something waits or is in
    progress. --wait returns when nothing is in progress any longer.
    """,
    "reconciler status HEAD --wait",
    "Read whether all is live and well, and if not, why.",
    (Parameter("target", "revision", default=""),),
    reading.read_summary,
    showing.show_summary,
    document=showing.make_summary_document,
    named="unready",
    exit_code=showing.choose_exit_code,
    is_changing=showing.is_summary_changing,
    progress=showing.describe_progress,
)
DESCRIBE = Overview(
    "describe",
    "-describe",
    SHARED_COMMANDS["describe"].line,
    """Show all that is known about KEY, first what is not well: conditions, locations, fields and last events.

    Keys look like workload/GVC/NAME, gvc/NAME and secret/NAME. For source/NAME it shows whether the newest commit is
    live, and if not, why. Fields that have their default are left out; -o wide shows them.
    """,
    SHARED_COMMANDS["describe"].call("reconciler"),
    "Describe a resource or source, as text.",
    (Parameter("key", "target", required=True),),
    reading.read_details,
    showing.show_details,
    document=showing.make_details_document,
    is_for_people=True,
)
EVENTS = Overview(
    "events",
    "-events",
    SHARED_COMMANDS["events"].line,
    """Show events, oldest first: of all resources and sources, or of KEY, which can be source/NAME.

    Events of deleted resources stay until they expire.
    """,
    SHARED_COMMANDS["events"].call("reconciler"),
    "Read the events of all resources, or of one.",
    (
        Parameter("key", "target"),
        share_parameter(SHARED_COMMANDS["events"].option("--last"), LAST, "number", bounds=(0, 100_000)),
    ),
    reading.read_events,
    showing.show_events,
    Listing(
        showing.make_event_item,
        "event",
        read_tags=reading.read_key_tags,
        read_time=reading.read_event_time,
        has_headings=False,
    ),
    is_feed=True,
)
HISTORY = Overview(
    "history",
    "-runs",
    SHARED_COMMANDS["history"].line,
    """Show the runs that changed something or failed, and the newest commit, newest first: of SOURCE, or of all.

    A revision that is refused several times is listed once, and so is a plan that waits or fails again and again. Of
    commits in a row that change nothing, the newest is listed, as `unchanged`.
    --run shows one of them with its timeline: each phase and each try of a step, when it began after the start of the
    run, how long it took, and how it ended. The newest 1,000 runs have one; JSON has the numbers of runs.
    """,
    SHARED_COMMANDS["history"].call("reconciler"),
    "List the runs of all sources, or of one.",
    (
        Parameter("source", default=""),
        share_parameter(SHARED_COMMANDS["history"].option("--last"), LAST, "number", bounds=(1, 10_000)),
        Parameter("run", "number", "Only the run N, with its timeline.", "N", bounds=(1, 2**53)),
    ),
    reading.read_runs,
    showing.show_runs,
    Listing(showing.make_run_item, "run", read_time=reading.read_run_time, has_headings=False),
)
_COMMITS = share_parameter(SHARED_COMMANDS["versions"].option("--commits"), "commits", "number", bounds=(1, 20_000))
VERSIONS = Overview(
    "versions",
    "-versions",
    SHARED_COMMANDS["versions"].line,
    """List the commits that changed KEY, newest first, with the fields that each changed.

    They are those of the file that declares it. `reconciler diff REV1 REV2 --key KEY` shows what differs between two of
    them, and `reconciler rollback KEY REV` goes back to one.
    """,
    SHARED_COMMANDS["versions"].call("reconciler"),
    "List the versions of a resource in Git.",
    (Parameter("key", "key", required=True), _COMMITS),
    reading.read_versions,
    showing.show_versions,
    document=showing.make_versions_document,
    notes=showing.note_search,
    nothing="none of the commits that were searched changed it",
)
BLAME = Overview(
    "blame",
    "-blame",
    SHARED_COMMANDS["blame"].line,
    """Show each field of KEY that its file has, with its line there and the commit that wrote it, as `git blame` does.

    A field counts as written where its value changed, not where its line moved. Values of secrets show as ***.
    """,
    SHARED_COMMANDS["blame"].call("reconciler"),
    "Read who wrote each field of a resource.",
    (Parameter("key", "key", required=True), _COMMITS),
    reading.read_versions,
    showing.show_blame,
    document=showing.make_blame_document,
    notes=showing.note_search,
    nothing="its file has no field",
)
TOP = Overview(
    "top",
    "-top",
    SHARED_COMMANDS["top"].line,
    """Show the replicas on this host: their state, their restarts, and what they use.

    CPU is in thousandths of a core since the last refresh; memory is resident memory. A port shows as 20001->8080: at
    127.0.0.1:20001 the replica serves the port that its manifest declares as 8080. Needs no daemon. On a terminal, the
    key q ends it.
    """,
    SHARED_COMMANDS["top"].call("reconciler"),
    "List the replicas on this host, with what they use.",
    (Parameter("gvc", help="Only the workloads of this GVC.", metavar="G"),),
    reading.read_replicas,
    showing.show_replicas,
    Listing(showing.make_replica_item, "replica", "replicas", read_tags=reading.read_key_tags),
    notes=showing.note_locations,
    nothing="no replicas run here",
    is_measured=True,
)
USAGE = Overview(
    "usage",
    "-usage",
    "Show what a workload used in the last day.",
    """Show what the workload KEY used in each minute of the last day in which it ran, by location.

    CPU is in thousandths of a core; requests are by the second; latency is the mean time until an answer, where the
    data plane measures it; READY are the replicas that were ready of those that were wanted. Needs no daemon.
    """,
    "reconciler usage workload/shop/api --since 1h",
    "Read what a workload used in each minute of the last day.",
    (Parameter("key", "key", required=True),),
    reading.read_usage,
    showing.show_usage,
    Listing(showing.make_usage_item, "usage", read_time=reading.read_usage_time),
    nothing="nothing was measured in the last day; a workload is measured each minute while it runs",
)
SNAPSHOTS = Overview(
    "snapshots",
    "-snapshot",
    SHARED_COMMANDS["snapshots"].line,
    """List the snapshots of the volume set KEY, or of all volume sets, as they were last observed.

    `reconciler command` takes, deletes and restores them. --deleted lists what `createFinalSnapshot` retained of
    volumes that were deleted on this host; `reconciler volume` deletes these.
    """,
    SHARED_COMMANDS["snapshots"].call("reconciler"),
    "List the snapshots of volume sets.",
    (
        Parameter("key", "key"),
        share_parameter(SHARED_COMMANDS["snapshots"].option("--deleted"), "deleted", "flag"),
    ),
    reading.read_snapshots,
    showing.show_snapshots,
    Listing(
        showing.make_snapshot_item,
        "snapshot",
        read_tags=reading.read_snapshot_tags,
        read_time=reading.read_snapshot_time,
    ),
    nothing="there are no snapshots",
)

NOTIFICATIONS = Overview(
    "notifications",
    "-notifications",
    "List the messages that were sent.",
    """List the messages of the setting `notifications`, newest first: to which channel, how that ended, and the answer.

    Those that wait, that a receiver refused, and that were muted are among them. The newest 100,000 are remembered.
    """,
    "reconciler notifications --last 20",
    "List the messages that were sent, or read one.",
    (
        Parameter(LAST, "number", "How many; 30.", "N", 30, bounds=(1, 100_000), spellings=_LAST),
        Parameter("id", "number", "Only the message N, with its text.", "N", bounds=(1, 2**53)),
    ),
    reading.read_notifications,
    showing.show_notifications,
    Listing(
        showing.make_notification_item, "notification", read_time=reading.read_notification_time, has_headings=False
    ),
    nothing="nothing was sent",
)

_ROWS = (STATUS, GET, DESCRIBE, EVENTS, HISTORY, VERSIONS, BLAME, TOP, USAGE, SNAPSHOTS, NOTIFICATIONS)
OVERVIEWS = {overview.name: overview for overview in _ROWS}
"""Command → overview."""
