"""The rows of the commands that belong to no kind."""

from __future__ import annotations

from reconciler.platform_cli.table.row import Option, Row
from reconciler.platform_cli.table.workload_rows import LOGS

_FILES = Option(
    "-f/--file",
    "A file, a directory with all manifests below it, or - for standard input.",
    "FILE",
    required=True,
    multiple=True,
)
_K8S = Option("--k8s", "The files are Kubernetes manifests.", flag=True)
_BODY = Option("-f/--file", "A file with the body; - is standard input.", "FILE")
_LOGIN = (
    Option("--device", "Log in with a browser on another machine.", flag=True),
    Option("--token-stdin", "Read a token or a key from standard input.", flag=True),
    Option("--keyring", "Keep tokens in the keyring of this desktop; without the flag: if there is one.", flag=True),
    Option("--bootstrap", "The token from standard input is the one of the first start.", flag=True),
)
_COMPOSE = (
    Option(
        "-f/--file/--compose-file",
        "A compose file, or - for standard input; later ones override earlier ones. "
        "Else compose.yaml or docker-compose.yml here.",
        "FILE",
        multiple=True,
    ),
    Option("--env-file", "A file with variables, in place of .env.", "FILE", multiple=True),
    Option("--compose-profile", "A profile of the project that is on; '*' is all.", "NAME", multiple=True),
    Option(
        "--allow-outside",
        "Read files outside of the project's directory too: what it names becomes public to all "
        "who read the manifests.",
        flag=True,
    ),
)
_LOCATIONS = Option("--location", "A location of the GVC, which is created too.", "NAME", multiple=True)
_READY = (
    Option("--ready", "Wait until everything is ready.", flag=True, also=("--wait",)),
    Option("--timeout", "How long --ready waits.", "TIME", default="5m"),
)
_CHART = "pipe it: helm template NAME CHART | platform apply --k8s -f -"
_NO_CLUSTERS = "no clusters are made here: the daemon applies to the clusters that its settings name under `locations`"

WORD_ALIASES = {"stack": ("compose",)}
"""First word of commands that belong to no kind → its other names."""
SECTIONS = {
    "Begin": ("login", "logout", "whoami", "profile", "misc"),
    "Manifests": ("apply", "diff", "delete", "convert", "stack"),
    "Look": (
        *("status", "describe", "events", "logs", "top", "plan", "history", "versions", "blame"),
        *("drift", "snapshots"),
    ),
    "Operate": (*("approve", "refuse", "rollback", "sync", "suspend", "resume", "restart", "retry", "scale", "hold"),),
}
"""Heading in the list of commands → first words, in the order of use."""
WORD_TITLES = {
    "account": "Accounts",
    "cron": "Cron workloads: their executions",
    "env": "Variables of containers",
    "helm": "Helm charts",
    "misc": "Completion for the Tab key",
    "mk8s": "Kubernetes clusters",
    "profile": "Profiles: defaults and logins of this command",
    "rest": "Single requests to the API",
    "snapshot": "Snapshots of volumes",
    "stack": "Compose projects",
    "task": "Tasks",
    "volume": "Volumes of a volume set",
}
"""Words with commands below them, but for kinds → what they are about."""

PROGRAM_ROWS = (
    Row(("account", "get"), "List accounts: a daemon serves one org.", "program:get_accounts", "[ref...]"),
    Row(
        ("apply",),
        "Create and change resources from manifests.",
        "manifests:apply",
        options=(
            _FILES,
            _K8S,
            *_READY,
            Option("--dry-run", "Change nothing; show what `diff` does.", flag=True),
            Option(
                "--digest", "Change nothing if the plan has another digest than the one that `diff` showed.", "DIGEST"
            ),
        ),
    ),
    Row(
        ("cp",),
        "Copy files from and to containers.",
        instead="through a command: platform workload exec REF --stdin -- sh -c 'cat > PATH' < FILE",
    ),
    Row(
        ("convert",),
        "Convert files of Kubernetes, Kamal or Podman.",
        "manifests:convert",
        options=(
            _FILES,
            Option("--protocol", "The protocol of all ports.", choices=("http", "http2", "grpc", "tcp")),
            Option("--destination", "A destination of Kamal: deploy.NAME.yml is read too.", "NAME"),
            Option("--allow-outside", "Read files outside of the directory of a file's project too.", flag=True),
        ),
    ),
    Row(("delete",), "Delete the resources of manifests.", "manifests:delete", options=(_FILES, _K8S)),
    Row(
        ("diff",),
        "Show what `apply` would change: the files, and the plan.",
        "manifests:diff",
        options=(_FILES, _K8S, Option("--detailed-exitcode", "Exit with 3 if something would change.", flag=True)),
    ),
    *(
        Row(("helm", each), text, instead=_CHART)
        for each, text in (("install", "Install a chart."), ("upgrade", "Upgrade a release."))
    ),
    Row(
        ("helm", "uninstall"),
        "Uninstall a release.",
        instead="pipe its chart: helm template NAME CHART | platform delete --k8s -f -",
    ),
    Row(
        ("helm", "list"),
        "List releases.",
        instead="a chart is applied as its resources: `platform KIND query --tag KEY` lists them",
    ),
    Row(("login",), "Log in, and make a profile.", "login:log_in", "[ref]", _LOGIN),
    Row(("logout",), "End the login of a profile.", "login:log_out", "[ref]"),
    Row(
        ("logs",),
        "Show the logs of workloads.",
        "logs:show",
        "<query>",
        LOGS,
        help="Show the logs of a workload, those of a key such as gvc/shop, or those that LogQL selects: "
        '\'{gvc="shop"} |= "error"\'.',
    ),
    Row(
        ("misc", "install-completion"),
        "Install completion for the Tab key.",
        "program:install_completion",
        options=(
            Option("--shell", "The shell; else that of $SHELL.", choices=("bash", "zsh", "fish")),
            Option("--print", "Print the script instead.", flag=True),
        ),
    ),
    Row(("mk8s", "create"), "Create a cluster.", instead=_NO_CLUSTERS),
    Row(
        ("port-forward",),
        "Forward a port of this machine.",
        instead="reach the workload by its endpoint, "
        "which `platform workload get REF` shows, or call it from inside: `platform workload exec REF -- COMMAND`",
    ),
    Row(("profile", "get"), "List profiles, or show some.", "profile:get", "[ref...]", lists=True),
    Row(("profile", "create"), "Create a profile.", "profile:update", "<ref>"),
    Row(("profile", "update"), "Set --org, --gvc, --endpoint and --token of a profile.", "profile:update", "<ref>"),
    Row(("profile", "set-default"), "Choose the profile for commands that name none.", "profile:set_default", "<ref>"),
    Row(("profile", "delete"), "Delete profiles.", "profile:delete", "<ref...>"),
    Row(("profile", "token"), "Print the token of a profile.", "profile:token", "[ref]"),
    Row(("rest", "get"), "Send a GET request.", "program:rest", "<path>", passed=("GET",)),
    *(
        Row(
            ("rest", each),
            f"Send a {each.upper()} request.",
            "program:rest",
            "<path>",
            (_BODY,),
            passed=(each.upper(),),
        )
        for each in ("post", "put", "patch", "delete")
    ),
    Row(
        ("stack", "deploy"),
        "Create and change the resources of a compose project.",
        "stack:deploy",
        options=(*_COMPOSE, _LOCATIONS, *_READY),
        aliases=("up",),
    ),
    Row(
        ("stack", "manifest"),
        "Print the manifests of a compose project.",
        "stack:manifest",
        options=(*_COMPOSE, _LOCATIONS),
    ),
    Row(
        ("stack", "rm"),
        "Delete the resources of a compose project, but not its GVC.",
        "stack:remove",
        options=(*_COMPOSE, Option("--volumes", "Delete its volume sets too.", flag=True)),
        aliases=("down",),
    ),
    Row(
        ("task", "get"),
        "List tasks.",
        instead="there are none: a command of a resource is `platform rest get /org/ORG/.../-command`",
    ),
    Row(("whoami",), "Show who you are.", "program:whoami"),
)
