"""Variables of workloads, and how many replicas they have: single values, changed without an editor."""

from __future__ import annotations

from typing import Any

from reconciler.errors import RefusedError, UsageError
from reconciler.platform_cli.commands.resources import patch_with, read_resource
from reconciler.platform_cli.option_values import parse_pairs, whole_number
from reconciler.platform_cli.output import make_field_getter
from reconciler.platform_cli.session import Session


def set_variables(session: Session, kind: str, ref: str, variable: tuple[str, ...], container: str | None) -> None:
    """Set variables of a container; others stay, also those that somebody sets meanwhile."""
    values = [{"name": name, "value": value} for name, value in parse_pairs(variable, "variable").items()]
    _change_container(session, kind, ref, container, {"$add/env": values})


def unset_variables(session: Session, kind: str, ref: str, name: tuple[str, ...], container: str | None) -> None:
    """Remove variables of a container."""
    _change_container(session, kind, ref, container, {"$remove/env": [*name]})


def list_variables(session: Session, kind: str, ref: str, container: str | None) -> None:
    """List the variables of a workload as its manifest has them; a reference to a secret stays one."""
    containers = _list_containers(session, kind, ref)
    names = [container["name"] for container in containers]
    if container and container not in names:
        raise RefusedError(_no_container(ref, container, names))
    variables = [
        {"container": mapping["name"], **variable}
        for mapping in containers
        if container in (None, mapping["name"])
        for variable in mapping.get("env") or ()
    ]
    columns = {"CONTAINER": make_field_getter("container")} if len(containers) > 1 else {}
    session.output.documents(
        [variables],
        {**columns, "NAME": make_field_getter("name"), "VALUE": lambda item: str(item.get("value", ""))},
        "env",
    )


def _change_container(session: Session, kind: str, ref: str, container: str | None, change: dict[str, Any]) -> None:
    names = [container["name"] for container in _list_containers(session, kind, ref)]
    if container is None and len(names) != 1:
        raise UsageError(f"{kind} {ref} has several containers; name one: --container {' or '.join(names)}")
    name = container or names[0]
    if name not in names:
        raise RefusedError(_no_container(ref, name, names))
    patch_with(session, kind, ref, {"spec": {"$add/containers": [{"name": name, **change}]}})


def _list_containers(session: Session, kind: str, ref: str) -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = (read_resource(session, kind, ref).get("spec") or {}).get("containers") or []
    return containers


def _no_container(ref: str, name: str, names: list[str]) -> str:
    return f"{ref} has no container {name!r}; there are: {', '.join(names)}"


def scale(session: Session, kind: str, ref: str, replicas: str | None, min_: str | None, max_: str | None) -> None:
    """Set the least and the most replicas of a workload, or both at once."""
    if (replicas is None) == (min_ is None and max_ is None):
        raise UsageError("write how many replicas, or --min NUMBER and --max NUMBER")
    bounds = {"minScale": (min_, "--min"), "maxScale": (max_, "--max")}
    if replicas is not None:
        bounds = dict.fromkeys(bounds, (replicas, "replicas"))
    limits = {name: whole_number(text, option) for name, (text, option) in bounds.items() if text is not None}
    if limits.get("maxScale") == 0:
        raise UsageError(f"to run none: platform workload stop {ref}")
    spec = read_resource(session, kind, ref).get("spec") or {}
    if spec.get("type") == "cron":
        raise RefusedError(f"{ref} runs on a schedule: it has executions, and no replicas to scale")
    patch_with(session, kind, ref, {"spec": {"defaultOptions": {"autoscaling": limits}}})
    if (spec.get("defaultOptions") or {}).get("suspend"):
        session.output.note(f"{ref} is stopped, so it has no replicas; to start it: platform workload start {ref}")
    own = [
        str(value.get("location")).rpartition("/")[2]
        for value in spec.get("localOptions") or ()
        if limits.keys() & (value.get("autoscaling") or {}).keys()
    ]
    if own:
        session.output.note(f"{', '.join(own)}: its own `localOptions` stay; change them: platform {kind} edit {ref}")
