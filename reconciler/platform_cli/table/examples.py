"""A call of each command, which its help shows."""

from __future__ import annotations

from reconciler.command_words import SHARED_COMMANDS
from reconciler.platform_cli.table.row import Row

NAMES = {
    "agent": "edge",
    "auditctx": "payments",
    "cloudaccount": "main",
    "domain": "www.example.com",
    "group": "developers",
    "gvc": "shop",
    "identity": "api",
    "image": "api:1.4",
    "ipset": "egress",
    "location": "aws-eu-central-1",
    "org": "acme",
    "policy": "deployers",
    "quota": "workloads",
    "secret": "db",
    "serviceaccount": "ci",
    "user": "ann",
    "volumeset": "data",
    "workload": "api",
}
"""Kind → the name of a resource in examples."""

_OF_ALL_KINDS = {
    "get": "-o yaml",
    "query": "--tag team=red",
    "patch": "--file patch.yaml",
    "tag": "--tag team=red --remove draft",
    "update": "--set description=better --set tags.team=red",
    "clone": "--name copy",
    "eventlog": "--ts age",
}
"""Subcommand that kinds share → what follows the name of a resource."""

_VOLUME = "--location aws-eu-central-1 --volume-index 0"
_SNAPSHOT = f"{_VOLUME} --snapshot-name before-upgrade"
EXAMPLES = {
    **{command.name: command.example for command in SHARED_COMMANDS.values()},
    "account get": "acme",
    "apply": "-f manifests/ --ready",
    "scale": "3",
    "status": "workload --gvc shop",
    "convert": "-f deployment.yaml -f service.yaml > api.yaml",
    "delete": "-f manifests/",
    "diff": "-f manifests/",
    "login": "--endpoint https://reconciler.example.com --org acme",
    "logs": """'{gvc="shop", workload="api"} |= "error"' --since 1h""",
    "misc install-completion": "--shell bash",
    "profile create": "staging --org acme --gvc shop-staging",
    "profile delete": "staging",
    "profile set-default": "staging",
    "profile token": "staging",
    "profile update": "default --org acme --gvc shop",
    "rest get": "/org/acme/gvc/shop",
    "rest post": "/org/acme/group --file group.yaml",
    "rest put": "/org/acme/group/developers --file group.yaml",
    "rest patch": "/org/acme/group/developers --file patch.yaml",
    "rest delete": "/org/acme/group/developers",
    "stack deploy": "--location aws-eu-central-1 --ready",
    "stack manifest": "-f compose.yaml --compose-profile web",
    "stack rm": "-f compose.yaml",
    "agent manifest": "--bootstrap-file edge.yaml --namespace agents --image registry.example.com/agent:1",
    "agent up": "--bootstrap-file edge.yaml --image registry.example.com/agent:1 --background",
    "agent create": "--description 'Data centre in Leeds'",
    "cloudaccount create-aws": "--role-arn arn:aws:iam::123456789012:role/platform",
    "cloudaccount create-azure": "--secret azure --url https://platform.azurewebsites.net --code - < code.txt",
    "cloudaccount create-gcp": "--project-id acme-prod",
    "cloudaccount create-ngs": "--secret ngs",
    "group create": "--query-property email=ann@example.com",
    "group add-member": "--email ann@example.com",
    "group remove-member": "--serviceaccount ci",
    "gvc create": "--location aws-eu-central-1 --env LOG_LEVEL=info",
    "gvc add-location": "--location gcp-us-east1",
    "gvc remove-location": "--location gcp-us-east1",
    "image docker-login": "--registry registry.example.com",
    "policy create": "--target-kind workload --all",
    "policy add-binding": "--permission connect --group developers",
    "policy remove-binding": "--permission connect --email ann@example.com",
    "secret set": "password -",
    "secret unset": "password",
    "secret create-opaque": "--file payload.bin --encoding base64",
    "secret create-dictionary": "--entry user=app --entry password=@password.txt",
    "secret create-userpass": "--username app --password-file password.txt",
    "secret create-tls": "--cert tls.crt --key tls.key",
    "secret create-keypair": "--secret-key id_ed25519 --public-key id_ed25519.pub",
    **{
        f"secret create-{each}": f"--file {each}.json"
        for each in ("aws", "azure-connector", "azure-sdk", "docker", "ecr", "gcp", "nats-account")
    },
    "serviceaccount add-key": "--description 'CI of the shop' --expires 90d",
    "serviceaccount remove-key": "--key 0123456789ab",
    "user invite": "--email ann@example.com",
    "volumeset create": "--initial-capacity 20",
    "volumeset expand": f"{_VOLUME} --new-capacity 40",
    "volumeset volume delete": _VOLUME,
    **{f"volumeset snapshot {each}": _SNAPSHOT for each in ("create", "delete", "restore", "verify")},
    "volumeset snapshot clone": f"{_SNAPSHOT} --source archive",
    "workload create": "--image nginx:1.27 --port 80 --env LOG_LEVEL=info --public",
    "workload env set": "LOG_LEVEL=debug COLOR=red",
    "workload env unset": "LOG_LEVEL",
    "workload scale": "3",
    "workload logs": "--follow --since 10m",
    "workload exec": "-- ls -l /app",
    "workload connect": "--replica api-0",
    "workload get-replicas": "--location aws-eu-central-1",
    "workload cron start": "--file overrides.yaml --wait",
}
"""Words of a command → what follows them, behind the name of a resource if it takes one of a kind."""


def example_of(row: Row) -> str:
    """A call of the command of ``row``, such as ``platform gvc tag shop --tag team=red``."""
    words, kind = " ".join(row.words), next(iter(row.passed), "")
    texts = ["platform", words]
    if kind in NAMES and row.argument and words not in SHARED_COMMANDS:
        texts.append(NAMES[kind])
    if row.words[1:] and row.words[1].startswith("create") and kind in NAMES:
        texts.append(f"--name {NAMES[kind]}")
    texts.append(EXAMPLES.get(words) or (_OF_ALL_KINDS.get(row.words[-1], "") if kind in NAMES else ""))
    return " ".join(filter(None, texts))
