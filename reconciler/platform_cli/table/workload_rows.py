"""The rows of the commands for what runs at locations: workloads, and their volume sets."""

from __future__ import annotations

from reconciler.platform_cli.table.operator_rows import SCALE
from reconciler.platform_cli.table.row import CREATE, LOCATION, TAG, Option, Row

LOGS = (
    Option("-f/--follow", "Also show new lines as they come.", flag=True),
    Option("--since", "Only lines since then: a time, or an age such as 30m.", "TIME"),
    Option("--until", "Only lines until then; written as --since.", "TIME"),
    Option("--location", "Only lines of this location.", "NAME"),
    Option("--replica", "Only lines of this replica or execution.", "NAME"),
)

_QUIET = Option("-q/--quiet", "Print only what the program prints.", flag=True)
_CONTAINER = (
    Option("--replica", "The replica; else the first one that is ready.", "NAME"),
    Option("--container", "The container; else the first one.", "NAME"),
    Option("--location", "Only replicas at this location.", "NAME"),
    _QUIET,
)
_OF_CONTAINER = Option("--container", "The container, if there are several.", "NAME")

_VOLUME = (
    Option("--location", "The location of the volume.", "NAME", required=True),
    Option("--volume-index/--index", "The volume, from 0.", "NUMBER", default="0"),
)
_SNAPSHOT = Option("--snapshot-name", "The name of the snapshot.", "NAME", required=True)
_WAIT = Option("--wait", "Wait for the end of the command.", flag=True, default=True)

VOLUMESET_ROWS = (
    Row(
        ("create",),
        "Create a volume set.",
        "creating:create_volumeset",
        options=(
            *CREATE,
            Option("--initial-capacity", "The capacity of each volume in GB.", "GB", required=True),
            Option(
                "--performance-class",
                "The class of its volumes.",
                default="general-purpose-ssd",
                choices=("general-purpose-ssd", "premium-low-latency-ssd"),
            ),
            Option("--file-system-type", "The file system.", choices=("ext4", "xfs"), default="ext4"),
        ),
    ),
    Row(
        ("expand",),
        "Enlarge a volume.",
        "placing:expand_volume",
        "<ref>",
        (*_VOLUME, Option("--new-capacity", "The capacity in GB.", "GB", required=True), _WAIT),
    ),
    Row(
        ("snapshot", "create"),
        "Take a snapshot.",
        "placing:create_snapshot",
        "<ref>",
        (
            *_VOLUME,
            _SNAPSHOT,
            Option("--expiration", "When it is deleted, such as 2030-01-31T12:00:00Z; never without this.", "TIME"),
            TAG,
            _WAIT,
        ),
    ),
    Row(("snapshot", "get"), "List the snapshots.", "placing:get_snapshots", "<ref>", lists=True),
    Row(
        ("snapshot", "delete"),
        "Delete a snapshot.",
        "placing:delete_snapshot",
        "<ref>",
        (*_VOLUME, _SNAPSHOT, _WAIT),
    ),
    Row(
        ("snapshot", "restore"),
        "Restore a volume.",
        "placing:restore_snapshot",
        "<ref>",
        (*_VOLUME, _SNAPSHOT, _WAIT),
    ),
    Row(
        ("snapshot", "verify"),
        "Prove that a snapshot can be restored.",
        "placing:verify_snapshot",
        "<ref>",
        (*_VOLUME, _SNAPSHOT, _WAIT),
    ),
    Row(
        ("snapshot", "clone"),
        "Make a snapshot one of another volume set.",
        "placing:clone_snapshot",
        "<ref>",
        (
            *_VOLUME,
            _SNAPSHOT,
            Option("--source", "The volume set that has it: data, or //gvc/shop/volumeset/data.", "REF", required=True),
            _WAIT,
        ),
    ),
    Row(("volume", "get"), "List the volumes.", "placing:get_volumes", "<ref>", lists=True),
    Row(("volume", "delete"), "Delete a volume.", "placing:delete_volume", "<ref>", (*_VOLUME, _WAIT)),
)

WORKLOAD_ROWS = (
    Row(
        ("create",),
        "Create a workload of one container.",
        "creating:create_workload",
        options=(
            *CREATE,
            Option("--image", "The image.", "IMAGE", required=True),
            Option("--type", "The type.", choices=("serverless", "standard", "stateful"), default="serverless"),
            Option("--port", "A port of the container.", "NUMBER", multiple=True),
            Option("--env", "A variable.", "KEY=VALUE", multiple=True),
            Option("--cpu", "The processor time, such as 100m.", "CPU"),
            Option("--memory/--mem", "The memory, such as 256Mi.", "MEMORY"),
            Option("--command", "The program, in place of that of the image.", "PROGRAM"),
            Option("--arg", "An argument of the program.", "TEXT", multiple=True),
            Option("--public", "Let the whole internet in, and the workload out.", flag=True),
        ),
    ),
    Row(
        ("run",),
        "Run a command once.",
        instead="declare a workload of type cron, then `platform workload cron "
        "start REF`; in a container that runs: `platform workload exec REF -- COMMAND`",
    ),
    Row(("open",), "Open the endpoint in a browser.", instead="`platform workload get REF` shows the endpoint"),
    Row(("get-deployments",), "Show the deployments.", "placing:get_deployments", "<ref>", lists=True),
    Row(("get-replicas",), "Show the replicas.", "placing:get_replicas", "<ref>", (LOCATION,), lists=True),
    Row(("start",), "End a suspension.", "placing:start", "<ref>"),
    Row(("stop",), "Suspend a workload.", "placing:stop", "<ref>"),
    Row(("logs",), "Show the logs of a workload.", "logs:workload_logs", "<ref>", LOGS),
    Row(
        ("force-redeployment",),
        "Replace all replicas.",
        "placing:force_redeployment",
        "<ref>",
        aliases=("restart",),
    ),
    Row(
        ("scale",),
        "Set how many replicas a workload has at each location.",
        "variables:scale",
        "<ref> [replicas]",
        SCALE,
    ),
    Row(
        ("env", "set"),
        "Set variables of a container; the others stay.",
        "variables:set_variables",
        "<ref> <variable...>",
        (_OF_CONTAINER,),
    ),
    Row(
        ("env", "unset"),
        "Remove variables of a container.",
        "variables:unset_variables",
        "<ref> <name...>",
        (_OF_CONTAINER,),
    ),
    Row(
        ("env", "list"),
        "List the variables of a workload, as its manifest has them.",
        "variables:list_variables",
        "<ref>",
        (_OF_CONTAINER,),
        aliases=("get",),
    ),
    Row(
        ("exec",),
        "Run a command in a container, and exit with its code; 125 if that is unknown.",
        "executing:run_command",
        "<ref> <command...>",
        (
            *_CONTAINER,
            Option("-i/--stdin", "Pass standard input on; else only that of a terminal.", flag=True),
            Option("-t/--tty", "Give the command a terminal; else if this one is on one.", flag=True),
        ),
    ),
    Row(
        ("connect",),
        "Open a shell in a container.",
        "executing:open_shell",
        "<ref>",
        (*_CONTAINER, Option("-s/--shell", "The shell; else bash where there is one, or sh.", "PROGRAM")),
    ),
    Row(
        ("cron", "start"),
        "Run a cron workload now.",
        "executions:start_cron",
        "<ref>",
        (
            LOCATION,
            Option("-f/--file", "Overrides of its containers, a list; - is standard input.", "FILE"),
            Option("--wait", "Wait for the end of the run: exit with 1 if it fails. Else for its start.", flag=True),
            Option("--timeout", "How long to wait for the end of the run.", "TIME", default="1h"),
        ),
    ),
    Row(
        ("cron", "get"),
        "Show the executions of a cron workload.",
        "executions:get_executions",
        "<ref>",
        (LOCATION,),
    ),
)
