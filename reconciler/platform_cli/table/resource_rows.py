"""The rows of the commands for resources: those that all kinds share, and those of single kinds."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.platform_cli.table.kinds import KINDS
from reconciler.platform_cli.table.operator_rows import SCALE
from reconciler.platform_cli.table.row import Option, Row

MATCH = ("all", "any", "none")
NAME = Option("--name", "The name.", "NAME", required=True)
DESCRIPTION = Option("--description/--desc", "The description; else the name.", "TEXT")
TAG = Option("--tag", "A tag.", "KEY=VALUE", multiple=True)
CREATE = (NAME, DESCRIPTION, TAG)
FILE = Option("-f/--file", "A file with an object in YAML or JSON; - is standard input.", "FILE", required=True)
LOCATION = Option("--location", "A location.", "NAME")
LOCATIONS = Option("--location", "A location.", "NAME", required=True, multiple=True)
_WITH_HOW = (NAME._replace(required=False), DESCRIPTION, TAG)
"""Required too, but not with ``HOW``."""
HOW = Option("--how", "Print the steps of the registration, and create nothing.", flag=True)
MEMBER = (Option("--email", "A user.", "EMAIL"), Option("--serviceaccount", "A service account.", "NAME"))


def query_options(prefix: str = "") -> tuple[Option, ...]:
    """The options of a query; ``prefix`` is that of their names."""
    return (
        Option(f"--{prefix}match", "How many conditions must hold.", choices=MATCH, default="all"),
        Option(
            f"--{prefix}property/--{prefix}prop", "A property, or only that it exists.", "KEY[=VALUE]", multiple=True
        ),
        Option(f"--{prefix}tag", "A tag, or only that it exists.", "KEY[=VALUE]", multiple=True),
        Option(f"--{prefix}rel", "A relation, or only that it exists.", "REL[=LINK]", multiple=True),
    )


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


_COMMON = (
    Row(("get",), "List resources, or show some.", "resources:get", "[ref...]"),
    Row(("query",), "Find resources.", "resources:query", options=query_options()),
    Row(("edit",), "Change a resource in $EDITOR.", "resources:edit", "<ref>",
        (Option("-r/--replace", "Replace the resource instead of merging the changes.", flag=True),)),
    Row(("patch",), "Merge an object into a resource.", "resources:patch", "<ref>", (FILE,)),
    Row(("tag",), "Attach, replace and remove tags.", "resources:tag", "<ref...>",
        (TAG, Option("--remove", "A tag to remove.", "KEY", multiple=True))),
    Row(("update",), "Set single properties.", "resources:update", "<ref>",
        (Option("--set", "A property, such as description=TEXT, tags.KEY=VALUE or memberLinks+=LINK.",
                "PROPERTY=VALUE", required=True, multiple=True),)),
    Row(("clone",), "Create a resource with the same spec.", "resources:clone", "<ref>", CREATE),
    Row(("delete",), "Delete resources.", "resources:delete", "<ref...>"),
    Row(("eventlog",), "Show the event log.", "resources:eventlog", "<ref>", aliases=("log",)),
    Row(("permissions",), "List the permissions, and what each implies.", "resources:permissions"),
    Row(("access-report",), "Show who has which permission.", "resources:access_report", "<ref>"),
)  # fmt: skip
"""The subcommands that kinds have in common."""

_VOLUME = (
    Option("--location", "The location of the volume.", "NAME", required=True),
    Option("--volume-index/--index", "The volume, from 0.", "NUMBER", default="0"),
)
_SNAPSHOT = Option("--snapshot-name", "The name of the snapshot.", "NAME", required=True)
_WAIT = Option("--wait", "Wait for the end of the command.", flag=True, default=True)
_TARGET = Option("--target-kind", "The kind of the resources.", "KIND", required=True)
_PRINCIPALS = (
    Option("--permission", "A permission.", "NAME", required=True, multiple=True),
    *(
        Option(f"--{each}", f"A principal: {text}.", metavar, multiple=True)
        for each, text, metavar in (
            ("email", "a user", "EMAIL"),
            ("group", "a group", "NAME"),
            ("serviceaccount", "a service account", "NAME"),
            ("identity", "an identity", "LINK"),
        )
    ),
)
_BOOTSTRAP = Option(
    "--bootstrap-file",
    "What `agent create` printed, or a request to -bootstrap; - is standard input.",
    "FILE",
    required=True,
)
_AGENT_IMAGE = Option("--image", "The image of the agent; none is published, so it is yours.", "IMAGE")
_ENTRY = Option(
    "--entry",
    "A value; @FILE reads a file, and @- standard input, where no other user sees it.",
    "KEY=VALUE",
    required=True,
    multiple=True,
)
_ENCODING = Option("--encoding", "How the value is written.", choices=("plain", "base64"), default="plain")


def _value(name: str, text: str, required: bool = True) -> Option:
    names = "-f/--file" if name == "file" else f"--{name}"
    return Option(names, f"A file with {text}; - is standard input.", "FILE", required=required)


_OF_CONTAINER = Option("--container", "The container, if there are several.", "NAME")

_OWN: dict[str, tuple[Row, ...]] = {
    "agent": (
        Row(("create",), "Create an agent, and print its bootstrap file.", "creating:create_agent", options=CREATE),
        Row(("info",), "Show what an agent reports.", "resources:show_report", "<ref>"),
        Row(("manifest",), "Print the Kubernetes manifests that run an agent.", "agents:print_manifest",
            options=(_BOOTSTRAP, Option("-n/--namespace", "The namespace.", "NAME", required=True), _AGENT_IMAGE,
                     Option("--cluster", "The name of the cluster, which the agent gets in CLUSTER.", "NAME"),
                     Option("--replicas", "How many agents run.", "NUMBER", default="1"),
                     Option("--create-namespace", "Print the namespace too.", flag=True, default=True))),
        Row(("up",), "Run an agent in a container of this machine, with Docker or Podman.", "agents:run_agent",
            options=(_BOOTSTRAP, Option("-b/--background", "Return when it is started.", flag=True), _AGENT_IMAGE,
                     Option("--net", "The network of the container.", "NAME", default="bridge"))),
    ),
    "auditctx": (Row(("create",), "Create an audit context.", "creating:create_plain", options=CREATE),),
    "cloudaccount": (
        Row(("create-aws",), "Create an account of AWS.", "creating:cloudaccount_aws",
            options=(*_WITH_HOW, Option("--role-arn", "The role.", "ARN"), HOW)),
        Row(("create-azure",), "Create an account of Azure, and its secret.", "creating:cloudaccount_azure",
            options=(*_WITH_HOW, Option("--secret", "The secret to create.", "NAME"),
                     Option("--url", "The address of the connector.", "URL"),
                     Option("--code", "The code of the connector; - is standard input.", "CODE"), HOW)),
        Row(("create-gcp",), "Create an account of Google Cloud.", "creating:cloudaccount_gcp",
            options=(*_WITH_HOW, Option("--project-id", "The project.", "ID"), HOW)),
        Row(("create-ngs",), "Create an account of NGS.", "creating:cloudaccount_ngs",
            options=(NAME, DESCRIPTION, TAG, Option("--secret", "The secret that authenticates.", "NAME",
                required=True))),
    ),
    "domain": (Row(("create",), "Create a domain for the GVC, once its TXT record is there.", "creating:create_domain",
            options=CREATE),),
    "group": (
        Row(("create",), "Create a group.", "creating:create_group",
            options=(*CREATE, *query_options("query-"),
                     Option("--query-kind", "The kind of the members.", choices=("user",), default="user"))),
        Row(("add-member",), "Add a member.", "members:add_member", "<ref>", MEMBER),
        Row(("remove-member",), "Remove a member.", "members:remove_member", "<ref>", MEMBER),
    ),
    "gvc": (
        Row(("create",), "Create a GVC.", "creating:create_gvc",
            options=(*CREATE, LOCATIONS, Option("--env", "A variable of its workloads.", "KEY=VALUE", multiple=True),
                     *query_options("query-"))),
        Row(("add-location",), "Add locations.", "members:add_location", "<ref...>", (LOCATIONS,)),
        Row(("remove-location",), "Remove locations.", "members:remove_location", "<ref...>", (LOCATIONS,)),
        Row(("delete-all-workloads",), "Delete every workload of a GVC.", "members:delete_all_workloads", "<ref>"),
    ),
    "image": (
        Row(("build",), "Build and push an image.", instead="Docker does it: platform image docker-login, then docker "
            "build --push --tag REGISTRY/NAME:TAG ."),
        Row(("copy",), "Copy an image.", instead="Docker does it: docker tag and docker push, or skopeo copy"),
        Row(("docker-login",), "Let Docker ask this command for logins to the registry of images.",
            "images:docker_login",
            options=(Option("--registry", "The registry; else that of the daemon.", "HOST"),
                     Option("--username", "Also store the login of this user; the password comes from standard input.",
                            "NAME"))),
    ),
    "identity": (Row(("create",), "Create an identity.", "creating:create_plain", options=CREATE),),
    "policy": (
        Row(("create",), "Create a policy.", "creating:create_policy",
            options=(*CREATE, _TARGET, Option("--all", "For all resources of the kind.", flag=True),
                     Option("--resource", "A resource, by name or link.", "REF", multiple=True))),
        Row(("add-binding",), "Grant permissions.", "members:add_binding", "<ref>", _PRINCIPALS),
        Row(("remove-binding",), "Revoke permissions.", "members:remove_binding", "<ref>", _PRINCIPALS),
    ),
    "secret": (
        Row(("reveal",), "Show a secret with its data.", "secrets:reveal", "<ref>"),
        Row(("set",), "Set a value of a secret, from standard input or a file; a dictionary is created if it is new.",
            "secrets:set_value", "<ref> <key> [value]",
            (Option("-f/--file", "A file with the value; else - or nothing: standard input, without its last line "
                    "break.", "FILE"),)),
        Row(("unset",), "Remove a value of a secret.", "secrets:unset_value", "<ref> <key>"),
        Row(("create-opaque",), "Create a secret of bytes.", "secrets:create_opaque",
            options=(*CREATE, _value("file", "the value"), _ENCODING)),
        Row(("create-dictionary",), "Create a secret of several values.", "secrets:create_dictionary",
            options=(*CREATE, _ENTRY)),
        Row(("create-userpass",), "Create a secret of a name and a password.", "secrets:create_userpass",
            options=(*CREATE, Option("--username", "The name.", "NAME", required=True),
                     _value("password-file", "the password"), _ENCODING)),
        Row(("create-tls",), "Create a secret of a certificate.", "secrets:create_tls",
            options=(*CREATE, _value("cert", "the certificate"), _value("key", "its key"),
                     _value("chain", "the chain", required=False))),
        Row(("create-keypair",), "Create a secret of a pair of keys.", "secrets:create_keypair",
            options=(*CREATE, _value("secret-key", "the secret key"), _value("public-key", "the public key",
                required=False),
                     _value("passphrase-file", "the passphrase", required=False))),
        *(Row((f"create-{each}",), f"Create a secret of type {each}.", "secrets:create_from_file",
              options=(*CREATE, _value("file", "its data, an object")), passed=(each,)) for each in ("aws", "ecr",
                  "azure-connector",
                                                                                     "nats-account")),
        *(Row((f"create-{each}",), f"Create a secret of type {each}.", "secrets:create_from_text",
              options=(*CREATE, _value("file", "its data, JSON")), passed=(each,)) for each in ("docker", "gcp",
                  "azure-sdk")),
    ),
    "serviceaccount": (
        Row(("create",), "Create a service account.", "creating:create_plain", options=CREATE),
        Row(("add-key",), "Add a key, and print it this once.", "accounts:add_key", "<ref>",
            (Option("--description/--desc", "What it is for.", "TEXT"),
             Option("--expires", "When it ends: 2027-01-31T12:00:00Z, or how long it lasts: 24h.", "TIME"))),
        Row(("get-keys",), "List the keys.", "accounts:get_keys", "<ref>"),
        Row(("remove-key",), "Revoke a key.", "accounts:remove_key", "<ref>",
            (Option("--key", "The id of the key.", "ID", required=True),)),
    ),
    "user": (
        Row(("invite",), "Let a person log in.", "accounts:invite",
            options=(Option("--email", "The address of the person.", "EMAIL", required=True),)),
    ),
    "volumeset": (
        Row(("create",), "Create a volume set.", "creating:create_volumeset",
            options=(*CREATE, Option("--initial-capacity", "The capacity of each volume in GB.", "GB", required=True),
                     Option("--performance-class", "The class of its volumes.", default="general-purpose-ssd",
                            choices=("general-purpose-ssd", "premium-low-latency-ssd")),
                     Option("--file-system-type", "The file system.", choices=("ext4", "xfs"), default="ext4"))),
        Row(("expand",), "Enlarge a volume.", "placing:expand_volume", "<ref>",
            (*_VOLUME, Option("--new-capacity", "The capacity in GB.", "GB", required=True), _WAIT)),
        Row(("snapshot", "create"), "Take a snapshot.", "placing:create_snapshot", "<ref>", (*_VOLUME, _SNAPSHOT,
            Option("--expiration", "When it is deleted, such as 2030-01-31T12:00:00Z; never without this.", "TIME"),
            TAG, _WAIT)),
        Row(("snapshot", "get"), "List the snapshots.", "placing:get_snapshots", "<ref>"),
        Row(("snapshot", "delete"), "Delete a snapshot.", "placing:delete_snapshot", "<ref>", (*_VOLUME, _SNAPSHOT,
            _WAIT)),
        Row(("snapshot", "restore"), "Restore a volume.", "placing:restore_snapshot", "<ref>", (*_VOLUME, _SNAPSHOT,
            _WAIT)),
        Row(("snapshot", "verify"), "Prove that a snapshot can be restored.", "placing:verify_snapshot", "<ref>",
            (*_VOLUME, _SNAPSHOT, _WAIT)),
        Row(("snapshot", "clone"), "Make a snapshot one of another volume set.", "placing:clone_snapshot", "<ref>",
            (*_VOLUME, _SNAPSHOT, Option("--source", "The volume set that has it: data, or //gvc/shop/volumeset/data.",
                                         "REF", required=True), _WAIT)),
        Row(("volume", "get"), "List the volumes.", "placing:get_volumes", "<ref>"),
        Row(("volume", "delete"), "Delete a volume.", "placing:delete_volume", "<ref>", (*_VOLUME, _WAIT)),
    ),
    "workload": (
        Row(("create",), "Create a workload of one container.", "creating:create_workload",
            options=(*CREATE, Option("--image", "The image.", "IMAGE", required=True),
                     Option("--type", "The type.", choices=("serverless", "standard", "stateful"),
                            default="serverless"),
                     Option("--port", "A port of the container.", "NUMBER", multiple=True),
                     Option("--env", "A variable.", "KEY=VALUE", multiple=True),
                     Option("--cpu", "The processor time, such as 100m.", "CPU"),
                     Option("--memory/--mem", "The memory, such as 256Mi.", "MEMORY"),
                     Option("--command", "The program, in place of that of the image.", "PROGRAM"),
                     Option("--arg", "An argument of the program.", "TEXT", multiple=True),
                     Option("--public", "Let the whole internet in, and the workload out.", flag=True))),
        Row(("run",), "Run a command once.", instead="declare a workload of type cron, then `platform workload cron "
            "start REF`; in a container that runs: `platform workload exec REF -- COMMAND`"),
        Row(("open",), "Open the endpoint in a browser.", instead="`platform workload get REF` shows the endpoint"),
        Row(("get-deployments",), "Show the deployments.", "placing:get_deployments", "<ref>"),
        Row(("get-replicas",), "Show the replicas.", "placing:get_replicas", "<ref>", (LOCATION,)),
        Row(("start",), "End a suspension.", "placing:start", "<ref>"),
        Row(("stop",), "Suspend a workload.", "placing:stop", "<ref>"),
        Row(("logs",), "Show the logs of a workload.", "logs:workload_logs", "<ref>", LOGS),
        Row(("force-redeployment",), "Replace all replicas.", "placing:force_redeployment", "<ref>",
            aliases=("restart",)),
        Row(("scale",), "Set how many replicas a workload has at each location.", "variables:scale",
            "<ref> [replicas]", SCALE),
        Row(("env", "set"), "Set variables of a container; the others stay.", "variables:set_variables",
            "<ref> <variable...>", (_OF_CONTAINER,)),
        Row(("env", "unset"), "Remove variables of a container.", "variables:unset_variables", "<ref> <name...>",
            (_OF_CONTAINER,)),
        Row(("env", "list"), "List the variables of a workload, as its manifest has them.",
            "variables:list_variables", "<ref>", (_OF_CONTAINER,), aliases=("get",)),
        Row(("exec",), "Run a command in a container, and exit with its code; 125 if that is unknown.",
            "executing:run_command", "<ref> <command...>",
            (*_CONTAINER, Option("-i/--stdin", "Pass standard input on; else only that of a terminal.", flag=True),
             Option("-t/--tty", "Give the command a terminal; else if this one is on one.", flag=True))),
        Row(("connect",), "Open a shell in a container.", "executing:open_shell", "<ref>",
            (*_CONTAINER, Option("-s/--shell", "The shell; else bash where there is one, or sh.", "PROGRAM"))),
        Row(("cron", "start"), "Run a cron workload now.", "executions:start_cron", "<ref>",
            (LOCATION, Option("-f/--file", "Overrides of its containers, a list; - is standard input.", "FILE"),
             Option("--wait", "Wait for the end of the run: exit with 1 if it fails. Else for its start.", flag=True),
             Option("--timeout", "How long to wait for the end of the run.", "TIME", default="1h"))),
        Row(("cron", "get"), "Show the executions of a cron workload.", "executions:get_executions", "<ref>",
            (LOCATION,)),
    ),
}  # fmt: skip

_FORCE = Option(
    "--force", "Delete volume sets with it, and approve what waits, if nothing else waits with it.", flag=True
)


def kind_rows(kind: str) -> Iterator[Row]:
    """The commands of ``kind``, its own after the common ones."""
    view = KINDS[kind]
    for row in _COMMON:
        if advice := view.lacks.get(row.words[0]):
            yield row._replace(run="", argument="", options=(), passed=(kind,), instead=advice.format(kind=kind))
        elif (kind, row.words[0]) == ("gvc", "delete"):
            yield row._replace(options=(_FORCE,), passed=(kind,))
        else:
            yield row._replace(passed=(kind,))
    yield from (row._replace(passed=(kind, *row.passed)) for row in _OWN.get(kind, ()))
