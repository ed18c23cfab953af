"""The fields of deploy.yml: what becomes of each, and notes about those that have no counterpart."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.convert.compose.nodes import Node
from reconciler.convert.notes import ConversionNote
from reconciler.model.suggest import find_closest_word

CARRIED = {
    "accessories.*": "`workload` with the name SERVICE-ACCESSORY, or that of `service`",
    "accessories.*.cmd": "`args`",
    "accessories.*.directories": "a volume set each; it begins empty",
    "accessories.*.files": "a secret each with what the file has, which is mounted; files that Ruby makes are left out",
    "accessories.*.host": "one replica",
    "accessories.*.hosts": "a replica for each",
    "accessories.*.image": "`image`",
    "accessories.*.port": "`ports`, for workloads of the GVC",
    "accessories.*.registry.server": "the registry of the image",
    "accessories.*.service": "the name of the workload",
    "accessories.*.volumes": "as `volumes`",
    "env": "`env`; that of a role extends it, and an accessory has its own",
    "env.clear": "`env`",
    "env.secret": "`env`, each a key of the secret SERVICE-secrets, which you create",
    "image": "`image`, with `registry.server`, else that of Docker, `docker.io`; a tag that is not written is `latest`",
    "labels": "tags, also those of a role or an accessory",
    "options.cpus": "`cpu`, of a role or an accessory",
    "options.memory": "`memory`, of a role or an accessory",
    "options.restart": "containers that end are started again",
    "primary_role": "the role whose workload has the name of the service, and the proxy; `web` unless set",
    "proxy.app_port": "`ports`: HTTP, open to all addresses; 80 unless set",
    "proxy.healthcheck.interval": "`readinessProbe.periodSeconds`",
    "proxy.healthcheck.path": "`readinessProbe.httpGet.path`; `/up` unless set",
    "proxy.healthcheck.timeout": "`readinessProbe.timeoutSeconds`",
    "proxy.host": "`domain` with a route to the workload",
    "proxy.hosts": "a `domain` each",
    "proxy.path_prefix": "the prefix of the route",
    "proxy.ssl": "a domain is always served with TLS; a warning where it is off",
    "registry.server": "the registry of `image`",
    "require_destination": "an error without `--destination`",
    "secrets_path": "the files of secrets, in place of `.kamal/secrets`",
    "servers": "`workload` for each role; a list is the role `web`",
    "servers.*.cmd": "`args`",
    "servers.*.hosts": "a replica for each",
    "service": "the GVC unless `--gvc` names one, and the name of the workload of the primary role",
    "volumes": "a volume set each, for the first workload that mounts it; paths of the machine are left out",
}
"""Form of a field → its counterpart."""

SAME_HERE = frozenset(
    (
        "aliases",
        "allow_empty_roles",
        "hooks_output",
        "minimum_version",
        "output",
        "readiness_delay",
        "retain_containers",
        "run_directory",
        "ssh",
        "sshkit",
    )
)
"""Fields of the root that only concern the program kamal; they are left out without a remark, as `x-` fields are."""

_PULL = "link a docker secret from the GVC: spec.pullSecretLinks"
_LOGS = "logs are collected by themselves: platform logs"
_PROXY = "the endpoint of a workload has no such setting"
_ASSETS = "keep files of the last version in the image, or serve them from elsewhere"
_WAIT = "a replica has up to 90 seconds to end"
_OPTION = "containers take no options of docker run"
_BUILD = "build and push the image: docker build --push --tag IMAGE ."

LEFT_OUT = {
    "accessories.*.network": "workloads of a GVC share one network; firewallConfig decides who reaches a workload",
    "accessories.*.registry": _PULL,
    "accessories.*.role": "a workload runs at the locations of its GVC",
    "accessories.*.roles": "a workload runs at the locations of its GVC",
    "accessories.*.tag": "a workload runs at the locations of its GVC",
    "accessories.*.tags": "a workload runs at the locations of its GVC",
    "asset_path": _ASSETS,
    "boot": "see rolloutOptions of the workload",
    "builder": _BUILD,
    "deploy_timeout": "see readinessProbe of the workload",
    "drain_timeout": _WAIT,
    "env.tags": "write a workload for the hosts that have the tag",
    "error_pages_path": "serve the pages from the program itself",
    "hooks_path": "run the hooks in your pipeline",
    "logging": _LOGS,
    "proxy.buffering": _PROXY,
    "proxy.forward_headers": "the endpoint always sets X-Forwarded-For and X-Forwarded-Proto",
    "proxy.logging": _LOGS,
    "proxy.response_timeout": "see timeoutSeconds of the workload",
    "proxy.run": "the endpoint runs by itself",
    "proxy.ssl.certificate_pem": "make a tls secret, and link it from the domain",
    "proxy.ssl.private_key_pem": "make a tls secret, and link it from the domain",
    "proxy.ssl_redirect": "see the ports of the domain",
    "proxy.strip_path_prefix": "see replacePrefix of the route",
    "registry.password": _PULL,
    "registry.username": _PULL,
    "servers.*.asset_path": _ASSETS,
    "servers.*.logging": _LOGS,
}
"""Form of a field without a counterpart → what to do instead."""

RULES = {
    "builder": "compose-build",
    "registry.password": "convert-pull-secret",
    "registry.username": "convert-pull-secret",
}
"""Form of a field that is left out → the rule of its remark, where it is not `convert-left-out`."""

_KNOWN = CARRIED.keys() | LEFT_OUT.keys() | SAME_HERE
_MEMBERS = ("servers", "accessories")
"""Mappings of names that people choose to roles and accessories."""
_FREE = ("env.clear", "env.secret", "labels")
"""Fields whose own fields have any name."""
_SHARED = ("env", "labels", "options", "proxy")
"""Fields of roles and accessories in which the same has a meaning."""


def check_unused_fields(node: Node, form: str = "") -> Iterator[ConversionNote]:
    """Notes about the fields below ``node``, which has the form ``form``, that nothing is made of."""
    for name, child in node.fields.items():
        here = _find_shared_form(f"{form}.{name}" if form else name)
        if here in SAME_HERE or here in _FREE or name.startswith("x-"):
            continue
        if here in LEFT_OUT:
            rule = RULES.get(here, "convert-left-out")
            yield child.origin.note(rule, f"`{name}` has no counterpart and is left out", LEFT_OUT[here])
        elif here in _MEMBERS:
            for member in child.fields.values():
                yield from check_unused_fields(member, f"{here}.*")
        elif here == "env":
            tags = {key: value for key, value in child.fields.items() if key == "tags"}
            yield from check_unused_fields(child._replace(value=tags), here)
        elif here in _KNOWN or any(prefix.startswith(f"{here}.") for prefix in _KNOWN):
            yield from check_unused_fields(child, here)
        else:
            instead = _OPTION if form.endswith("options") else _suggest_field(name, form)
            yield child.origin.note("convert-left-out", f"`{name}` has no counterpart and is left out", instead)


def _find_shared_form(form: str) -> str:
    """``form`` as in the tables: `env` and the like are one for the root, roles and accessories."""
    parts = form.split(".")
    return ".".join(parts[2:]) if len(parts) > 2 and parts[0] in _MEMBERS and parts[2] in _SHARED else form


def _suggest_field(name: str, form: str) -> str:
    above = f"{form}." if form else ""
    beside = {text.removeprefix(above).partition(".")[0] for text in _KNOWN if text.startswith(above)}
    near = find_closest_word(name, sorted(beside - {"*"}))
    return f"did you mean `{near}`?" if near else ""
