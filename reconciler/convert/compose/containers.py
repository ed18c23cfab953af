"""Converts the container of a service: image, command, variables, resources, probe and hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from reconciler.convert.compose.nodes import CONTROL
from reconciler.convert.compose.ports import ComposePort
from reconciler.convert.compose.shell_words import split_words
from reconciler.convert.compose.stored_files import StoredFiles
from reconciler.convert.compose.values import Field
from reconciler.convert.drafts import Body
from reconciler.convert.probes import PROBE_BOUNDS, clamp_value
from reconciler.convert.quantities import format_cpu, format_memory
from reconciler.model.image_names import with_registry
from reconciler.model.platform import RESERVED_VARIABLES, SECRET_URI, TAG_PREFIX, VARIABLE_PREFIX

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,119}")
_REFERENCE = re.compile(r"\$\([-._a-zA-Z][-._a-zA-Z0-9]*\)")
_LONGEST = 4096
"""The longest value of a variable."""
_INTERVAL, _TIMEOUT = 30, 30
"""Seconds of a health check that names none; the platform's own defaults are shorter."""
_MOST_TAGS = 49
"""One fewer than the platform allows: the tag for dependencies may join them."""
_RESOURCES = ("deploy", "resources")
_SHELL = ["/bin/sh", "-c"]


def convert_image(name: str, service: Field) -> str:
    """The image; that of a service which is built has the name of its workload."""
    if service["build"]:
        service["build"].ignore()
        service["build"].add_note(
            "compose-build",
            "the image must be built and pushed",
            "platform image docker-login, then docker build --push --tag IMAGE .",
            on_key=True,
        )
        return with_registry(service["image"].text()) or f"//image/{name}:latest"
    if not service["image"]:
        service.add_note("convert-malformed", "a service has an `image` or `build`", on_key=True)
    return with_registry(service["image"].text())


def convert_command(service: Field) -> Body:
    """``command`` and ``args``: the entrypoint replaces that of the image, and the command follows it."""
    entrypoint, command = service["entrypoint"], service["command"]
    begin, end = split_command(entrypoint), split_command(command)
    for part, texts in ((entrypoint, begin), (command, end)):
        if part and not texts:
            part.add_note("convert-left-out", f"an empty `{part.at[-1]}` has no counterpart: that of the image counts")
    return {"command": begin[0] if begin else "", "args": [*begin[1:], *end]}


def split_command(part: Field) -> list[str]:
    """The words of a command, a list or a text as a shell reads it."""
    if isinstance(part.value, list):
        return part.texts()
    try:
        return split_words(part.text())
    except ValueError:
        part.add_note("convert-malformed", f"a quote in `{part.at[-1]}` does not end")
        return []


def convert_resources(service: Field) -> Body:
    """``cpu`` and ``memory``: limits, else reservations; where neither is set, the platform's default applies."""
    amounts: Body = {}
    limits, reserved = ((*_RESOURCES, form) for form in ("limits", "reservations"))
    for steps in (limits, reserved):
        _get_field(service, steps)
    cores = _find_first_field(service, (*limits, "cpus"), ("cpus",), (*reserved, "cpus"))
    size = _find_first_field(service, (*limits, "memory"), ("mem_limit",), (*reserved, "memory"), ("mem_reservation",))
    if cores and (amount := cores.cores()):
        amounts["cpu"] = format_cpu(amount)
    if size and (amount := size.size()):
        amounts["memory"] = format_memory(amount)
    if missing := [field for field in ("cpu", "memory") if field not in amounts]:
        service.add_note(
            "convert-default",
            f"no limit for {' and '.join(missing)} is set, so the default applies",
            "defaults are 50m and 128Mi; set deploy.resources.limits",
            on_key=True,
        )
    return amounts


def _find_first_field(service: Field, *paths: Sequence[str]) -> Field | None:
    """The first of the values at ``paths`` that is set; the others stay unused."""
    for path in paths:
        value = service.value
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            return _get_field(service, path)
    return None


def _get_field(part: Field, steps: Sequence[str]) -> Field:
    for step in steps:
        part = part[step]
    return part


def convert_variables(
    service: Field, files: StoredFiles, environ: Mapping[str, str], ports: Sequence[ComposePort], own: Mapping[str, str]
) -> tuple[list[Body], set[str]]:
    """``env``, and the secrets that it refers to: env files in their order, then `environment`, which wins.

    ``own`` are variables with the secret and key of each, such as ``db.password``.
    """
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for name, reference in own.items():
        if _is_allowed(service, name):
            environment[name], secrets[name] = f"{SECRET_URI}{reference}", reference.partition(".")[0]
    for entry in service["env_file"].items():
        stored = files.variables(entry)
        for key in stored.keys:
            if _is_allowed(entry, key):
                environment[key], secrets[key] = f"{SECRET_URI}{stored.secret}.{key}", stored.secret
    for name, part in service["environment"].fields():
        value = _get_variable_value(name, part, environ)
        if value is not None and _is_allowed(part, name) and _is_writable(part, name, value, ports):
            environment[name] = value
            secrets.pop(name, None)
    return [{"name": name, "value": value} for name, value in environment.items()], set(secrets.values())


def _get_variable_value(name: str, part: Field, environ: Mapping[str, str]) -> str | None:
    """The value of a variable; one without a value has that of the caller's environment."""
    if part:
        return part.text()
    if name not in environ:
        part.add_note("compose-unset", "the variable is not set, and is left out", on_key=True)
    return environ.get(name)


def _is_allowed(part: Field, name: str) -> bool:
    if name not in RESERVED_VARIABLES and not name.startswith(VARIABLE_PREFIX) and _NAME.fullmatch(name):
        return True
    part.add_note("convert-left-out", "the platform does not allow a variable of this name", on_key=True)
    return False


def _is_writable(part: Field, name: str, value: str, ports: Sequence[ComposePort]) -> bool:
    if CONTROL.search(value) or len(value) > _LONGEST:
        part.add_note(
            "convert-left-out",
            f"the value has over {_LONGEST} or control characters, and is left out",
            "put it into a file of `configs`",
            on_key=True,
        )
        return False
    if name == "PORT" and ports and value not in {str(port.number) for port in ports}:
        part.add_note(
            "convert-left-out",
            "PORT is one of the ports of the container, so this value is left out",
            "add the port to `expose`",
            on_key=True,
        )
        return False
    if _REFERENCE.search(value):
        part.add_note("convert-changed", "$(NAME) in the value stands for the variable NAME here", on_key=True)
    return True


def convert_health_check(service: Field) -> Body:
    """``readinessProbe`` of a health check; empty where there is none."""
    check = service["healthcheck"]
    if not check or check["disable"].flag():
        return {}
    command = _parse_health_command(check["test"])
    if not command:
        return {}
    amounts = (
        ("initialDelaySeconds", check["start_period"], check["start_period"].seconds()),
        ("periodSeconds", check["interval"], check["interval"].seconds() or _INTERVAL),
        ("timeoutSeconds", check["timeout"], check["timeout"].seconds() or _TIMEOUT),
        ("failureThreshold", check["retries"], check["retries"].number()),
    )
    timing = {
        name: clamp_value(part, amount, *PROBE_BOUNDS[name]) for name, part, amount in amounts if amount is not None
    }
    return {"exec": {"command": command}, **timing}


def _parse_health_command(part: Field) -> list[str]:
    """The command of a health check; empty, with a note unless it is NONE, where there is none."""
    if isinstance(part.value, str):
        return [*_SHELL, part.value]
    if not part:
        part.add_note(
            "convert-left-out",
            "the health check of the image is not known, so there is no probe",
            "write its test",
            on_key=True,
        )
        return []
    form, *rest = part.texts() or [""]
    if form == "NONE":
        return []
    if form in ("CMD", "CMD-SHELL") and rest:
        return rest if form == "CMD" else [*_SHELL, " ".join(rest)]
    part.add_note("convert-malformed", "a test is a text, or a list that begins with CMD, CMD-SHELL or NONE")
    return []


def convert_hooks(service: Field) -> Body:
    """``lifecycle``: the first command of each hook."""
    body: Body = {}
    for field, hook in (("post_start", "postStart"), ("pre_stop", "preStop")):
        for index, entry in enumerate(service[field].items()):
            if index:
                entry.ignore()
                entry.add_note("convert-left-out", "a workload has one command of each hook; this one is left out")
            elif command := split_command(entry["command"]):
                body[hook] = {"exec": {"command": command}}
            else:
                entry.add_note("convert-malformed", "the field `command` is missing")
    return body


def convert_security_options(service: Field) -> Body:
    """``securityOptions``: a user and a group by number."""
    part = service["user"]
    user, _, group = part.text().partition(":")
    names = {"runAsUser": "0" if user == "root" else user, "filesystemGroupId": "0" if group == "root" else group}
    return dict(_list_ids(part, names))


def _list_ids(part: Field, names: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for field, text in names.items():
        if text.isdecimal() and len(text) <= 5 and int(text) < 65535:
            yield field, int(text)
        elif text:
            part.add_note("convert-left-out", "users and groups are numbers from 0 to 65534; the image's counts")


def convert_labels(service: Field) -> dict[str, str]:
    """The labels of the service, and of its deployment, that can be tags (docs/platform/fields.md#tags)."""
    own_tags: dict[str, str] = {}
    for labels in (service["labels"], service["deploy"]["labels"]):
        for name, part in labels.fields():
            if name.startswith(TAG_PREFIX) or name in own_tags or len(own_tags) == _MOST_TAGS:
                part.add_note(
                    "convert-left-out",
                    "the label is a built-in tag, a second one of its name, or one "
                    f"beyond {_MOST_TAGS}; it is left out",
                    on_key=True,
                )
            else:
                own_tags[name] = part.text()
    return own_tags
