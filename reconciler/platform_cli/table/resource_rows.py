"""The rows of the commands for resources: those that all kinds share, and those of single kinds."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.platform_cli.table.kinds import KINDS
from reconciler.platform_cli.table.row import CREATE, DESCRIPTION, NAME, TAG, Option, Row
from reconciler.platform_cli.table.workload_rows import VOLUMESET_ROWS, WORKLOAD_ROWS

MATCH = ("all", "any", "none")
FILE = Option("-f/--file", "A file with an object in YAML or JSON; - is standard input.", "FILE", required=True)
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


_COMMON = (
    Row(("get",), "List resources, or show some.", "resources:get", "[ref...]", lists=True),
    Row(("query",), "Find resources.", "resources:query", options=query_options(), lists=True),
    Row(
        ("edit",),
        "Change a resource in $EDITOR.",
        "resources:edit",
        "<ref>",
        (Option("-r/--replace", "Replace the resource instead of merging the changes.", flag=True),),
    ),
    Row(("patch",), "Merge an object into a resource.", "resources:patch", "<ref>", (FILE,)),
    Row(
        ("tag",),
        "Attach, replace and remove tags.",
        "resources:tag",
        "<ref...>",
        (TAG, Option("--remove", "A tag to remove.", "KEY", multiple=True)),
    ),
    Row(
        ("update",),
        "Set single properties.",
        "resources:update",
        "<ref>",
        (
            Option(
                "--set",
                "A property, such as description=TEXT, tags.KEY=VALUE or memberLinks+=LINK.",
                "PROPERTY=VALUE",
                required=True,
                multiple=True,
            ),
        ),
    ),
    Row(("clone",), "Create a resource with the same spec.", "resources:clone", "<ref>", CREATE),
    Row(("delete",), "Delete resources.", "resources:delete", "<ref...>"),
    Row(("eventlog",), "Show the event log.", "resources:eventlog", "<ref>", aliases=("log",), lists=True),
    Row(("permissions",), "List the permissions, and what each implies.", "resources:permissions", lists=True),
    Row(("access-report",), "Show who has which permission.", "resources:access_report", "<ref>", lists=True),
)
"""The subcommands that kinds have in common."""

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


_OWN: dict[str, tuple[Row, ...]] = {
    "agent": (
        Row(("create",), "Create an agent, and print its bootstrap file.", "creating:create_agent", options=CREATE),
        Row(("info",), "Show what an agent reports.", "resources:show_report", "<ref>"),
        Row(
            ("manifest",),
            "Print the Kubernetes manifests that run an agent.",
            "agents:print_manifest",
            options=(
                _BOOTSTRAP,
                Option("-n/--namespace", "The namespace.", "NAME", required=True),
                _AGENT_IMAGE,
                Option("--cluster", "The name of the cluster, which the agent gets in CLUSTER.", "NAME"),
                Option("--replicas", "How many agents run.", "NUMBER", default="1"),
                Option("--create-namespace", "Print the namespace too.", flag=True, default=True),
            ),
        ),
        Row(
            ("up",),
            "Run an agent in a container of this machine, with Docker or Podman.",
            "agents:run_agent",
            options=(
                _BOOTSTRAP,
                Option("-b/--background", "Return when it is started.", flag=True),
                _AGENT_IMAGE,
                Option("--net", "The network of the container.", "NAME", default="bridge"),
            ),
        ),
    ),
    "auditctx": (Row(("create",), "Create an audit context.", "creating:create_plain", options=CREATE),),
    "cloudaccount": (
        Row(
            ("create-aws",),
            "Create an account of AWS.",
            "creating:cloudaccount_aws",
            options=(*_WITH_HOW, Option("--role-arn", "The role.", "ARN"), HOW),
        ),
        Row(
            ("create-azure",),
            "Create an account of Azure, and its secret.",
            "creating:cloudaccount_azure",
            options=(
                *_WITH_HOW,
                Option("--secret", "The secret to create.", "NAME"),
                Option("--url", "The address of the connector.", "URL"),
                Option("--code", "The code of the connector; - is standard input.", "CODE"),
                HOW,
            ),
        ),
        Row(
            ("create-gcp",),
            "Create an account of Google Cloud.",
            "creating:cloudaccount_gcp",
            options=(*_WITH_HOW, Option("--project-id", "The project.", "ID"), HOW),
        ),
        Row(
            ("create-ngs",),
            "Create an account of NGS.",
            "creating:cloudaccount_ngs",
            options=(
                NAME,
                DESCRIPTION,
                TAG,
                Option("--secret", "The secret that authenticates.", "NAME", required=True),
            ),
        ),
    ),
    "domain": (
        Row(
            ("create",),
            "Create a domain for the GVC, once its TXT record is there.",
            "creating:create_domain",
            options=CREATE,
        ),
    ),
    "group": (
        Row(
            ("create",),
            "Create a group.",
            "creating:create_group",
            options=(
                *CREATE,
                *query_options("query-"),
                Option("--query-kind", "The kind of the members.", choices=("user",), default="user"),
            ),
        ),
        Row(("add-member",), "Add a member.", "members:add_member", "<ref>", MEMBER),
        Row(("remove-member",), "Remove a member.", "members:remove_member", "<ref>", MEMBER),
    ),
    "gvc": (
        Row(
            ("create",),
            "Create a GVC.",
            "creating:create_gvc",
            options=(
                *CREATE,
                LOCATIONS,
                Option("--env", "A variable of its workloads.", "KEY=VALUE", multiple=True),
                *query_options("query-"),
            ),
        ),
        Row(("add-location",), "Add locations.", "members:add_location", "<ref...>", (LOCATIONS,)),
        Row(("remove-location",), "Remove locations.", "members:remove_location", "<ref...>", (LOCATIONS,)),
        Row(("delete-all-workloads",), "Delete every workload of a GVC.", "members:delete_all_workloads", "<ref>"),
    ),
    "image": (
        Row(
            ("build",),
            "Build and push an image.",
            instead="Docker does it: platform image docker-login, then docker build --push --tag REGISTRY/NAME:TAG .",
        ),
        Row(("copy",), "Copy an image.", instead="Docker does it: docker tag and docker push, or skopeo copy"),
        Row(
            ("docker-login",),
            "Let Docker ask this command for logins to the registry of images.",
            "images:docker_login",
            options=(
                Option("--registry", "The registry; else that of the daemon.", "HOST"),
                Option(
                    "--username", "Also store the login of this user; the password comes from standard input.", "NAME"
                ),
            ),
        ),
    ),
    "identity": (Row(("create",), "Create an identity.", "creating:create_plain", options=CREATE),),
    "policy": (
        Row(
            ("create",),
            "Create a policy.",
            "creating:create_policy",
            options=(
                *CREATE,
                _TARGET,
                Option("--all", "For all resources of the kind.", flag=True),
                Option("--resource", "A resource, by name or link.", "REF", multiple=True),
            ),
        ),
        Row(("add-binding",), "Grant permissions.", "members:add_binding", "<ref>", _PRINCIPALS),
        Row(("remove-binding",), "Revoke permissions.", "members:remove_binding", "<ref>", _PRINCIPALS),
    ),
    "secret": (
        Row(("reveal",), "Show a secret with its data.", "secrets:reveal", "<ref>"),
        Row(
            ("set",),
            "Set a value of a secret, from standard input or a file; a dictionary is created if it is new.",
            "secrets:set_value",
            "<ref> <key> [value]",
            (
                Option(
                    "-f/--file",
                    "A file with the value; else - or nothing: standard input, without its last line break.",
                    "FILE",
                ),
            ),
        ),
        Row(("unset",), "Remove a value of a secret.", "secrets:unset_value", "<ref> <key>"),
        Row(
            ("create-opaque",),
            "Create a secret of bytes.",
            "secrets:create_opaque",
            options=(*CREATE, _value("file", "the value"), _ENCODING),
        ),
        Row(
            ("create-dictionary",),
            "Create a secret of several values.",
            "secrets:create_dictionary",
            options=(*CREATE, _ENTRY),
        ),
        Row(
            ("create-userpass",),
            "Create a secret of a name and a password.",
            "secrets:create_userpass",
            options=(
                *CREATE,
                Option("--username", "The name.", "NAME", required=True),
                _value("password-file", "the password"),
                _ENCODING,
            ),
        ),
        Row(
            ("create-tls",),
            "Create a secret of a certificate.",
            "secrets:create_tls",
            options=(
                *CREATE,
                _value("cert", "the certificate"),
                _value("key", "its key"),
                _value("chain", "the chain", required=False),
            ),
        ),
        Row(
            ("create-keypair",),
            "Create a secret of a pair of keys.",
            "secrets:create_keypair",
            options=(
                *CREATE,
                _value("secret-key", "the secret key"),
                _value("public-key", "the public key", required=False),
                _value("passphrase-file", "the passphrase", required=False),
            ),
        ),
        *(
            Row(
                (f"create-{each}",),
                f"Create a secret of type {each}.",
                "secrets:create_from_file",
                options=(*CREATE, _value("file", "its data, an object")),
                passed=(each,),
            )
            for each in ("aws", "ecr", "azure-connector", "nats-account")
        ),
        *(
            Row(
                (f"create-{each}",),
                f"Create a secret of type {each}.",
                "secrets:create_from_text",
                options=(*CREATE, _value("file", "its data, JSON")),
                passed=(each,),
            )
            for each in ("docker", "gcp", "azure-sdk")
        ),
    ),
    "serviceaccount": (
        Row(("create",), "Create a service account.", "creating:create_plain", options=CREATE),
        Row(
            ("add-key",),
            "Add a key, and print it this once.",
            "accounts:add_key",
            "<ref>",
            (
                Option("--description/--desc", "What it is for.", "TEXT"),
                Option("--expires", "When it ends: 2027-01-31T12:00:00Z, or how long it lasts: 24h.", "TIME"),
            ),
        ),
        Row(("get-keys",), "List the keys.", "accounts:get_keys", "<ref>"),
        Row(
            ("remove-key",),
            "Revoke a key.",
            "accounts:remove_key",
            "<ref>",
            (Option("--key", "The id of the key.", "ID", required=True),),
        ),
    ),
    "user": (
        Row(
            ("invite",),
            "Let a person log in.",
            "accounts:invite",
            options=(Option("--email", "The address of the person.", "EMAIL", required=True),),
        ),
    ),
    "volumeset": VOLUMESET_ROWS,
    "workload": WORKLOAD_ROWS,
}

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
