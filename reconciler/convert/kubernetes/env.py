"""Environment variables: plain values, and references into secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from reconciler.convert.kubernetes.bundle import Item
from reconciler.convert.kubernetes.secrets import ConvertedSecret, Secrets
from reconciler.convert.names import make_valid_name
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.platform import RESERVED_VARIABLES, SECRET_URI, VARIABLE_PREFIX

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,119}")
_SOURCES = {
    "secretKeyRef": "Secret",
    "configMapKeyRef": "ConfigMap",
    "secretRef": "Secret",
    "configMapRef": "ConfigMap",
}
_BUILT_IN = {"metadata.namespace": f"$({VARIABLE_PREFIX}GVC)"}
"""Fields of a pod → their counterparts in the platform (docs/platform/workload.md#built-in-variables)."""


class Readings:
    """The secrets that one workload reads, by environment or by mount."""

    def __init__(self, user: Item, secrets: Secrets) -> None:
        self._user = user
        self._secrets = secrets
        self.names: set[str] = set()

    def secret(self, kind: str, named: TrackedValue, optional: TrackedValue) -> ConvertedSecret | None:
        """The secret for the ``kind`` that ``named`` names; None where it is optional and not among the files."""
        name = named.require_text()
        secret = self._secrets.find(kind, self._user.namespace, name)
        if secret is None and optional.flag():
            named.add_note("convert-missing", f"the optional {kind} {name} is not among the files and is left out")
            return None
        if secret is None:
            secret = ConvertedSecret(make_valid_name(name), "", ())
            named.add_note(
                "convert-missing", f"the {kind} {name} is not among the files", f"the secret {secret.name} must exist"
            )
        self.names.add(secret.name)
        return secret

    def keys(self, secret: ConvertedSecret, user: TrackedValue) -> tuple[str, ...]:
        """The keys of a secret for ``user``, which has them all; none, with a note, where they become too many."""
        characters = sum(map(len, secret.keys))
        return secret.keys if self._secrets.budget.allows(len(secret.keys), characters, user.add_note) else ()

    def key(self, secret: ConvertedSecret, key: TrackedValue) -> str:
        """The URI of one key of a secret, with a note where the secret does not have it."""
        name = key.require_text()
        if secret.type and name not in secret.keys:
            key.add_note("convert-missing", f"the secret {secret.name} has no key {name}")
        return f"{SECRET_URI}{secret.name}.{name}"


class ConvertedVariable(NamedTuple):
    """A variable with its source value."""

    part: TrackedValue
    name: str
    value: str


def convert_variables(container: TrackedValue, readings: Readings) -> list[dict[str, str]]:
    """``env`` and ``envFrom`` in the platform's format; ``env`` overrides ``envFrom``, and later ones earlier ones."""
    by_name: dict[str, ConvertedVariable] = {}
    for variable in (*_list_imported_variables(container, readings), *_list_own_variables(container, readings)):
        name = variable.name
        if name in RESERVED_VARIABLES or name.startswith(VARIABLE_PREFIX) or not _NAME.fullmatch(name):
            variable.part.add_note("convert-left-out", f"the platform does not allow a variable {name!r}")
        else:
            by_name[name] = variable
    return [{"name": variable.name, "value": variable.value} for variable in by_name.values()]


def _list_own_variables(container: TrackedValue, readings: Readings) -> Iterator[ConvertedVariable]:
    for part in container["env"].items():
        name, source = part["name"].require_text(), part["valueFrom"]
        if not source:
            yield ConvertedVariable(part, name, part["value"].text())
            continue
        value = next(
            filter(None, (_taken_from(form, tracked_value, readings) for form, tracked_value in source.fields())), ""
        )
        if value:
            yield ConvertedVariable(part, name, value)


def _taken_from(form: str, source: TrackedValue, readings: Readings) -> str:
    """The value of a variable with ``valueFrom``, "" where there is none."""
    if form in _SOURCES:
        secret = readings.secret(_SOURCES[form], source["name"], source["optional"])
        if secret is None:
            source.ignore()
        return readings.key(secret, source["key"]) if secret else ""
    field = source["fieldPath"].text()
    source["apiVersion"].text()
    if form == "fieldRef" and field in _BUILT_IN:
        source.add_note("convert-changed", f"{field} becomes {_BUILT_IN[field]}, the name of the GVC")
        return _BUILT_IN[field]
    source.ignore()
    source.add_note(
        "convert-left-out",
        f"a variable from {form} {field} has no counterpart".replace("  ", " "),
        "see the built-in variables, or write the value itself",
        on_key=True,
    )
    return ""


def _list_imported_variables(container: TrackedValue, readings: Readings) -> Iterator[ConvertedVariable]:
    for part in container["envFrom"].items():
        prefix = part["prefix"].text()
        for form, source in part.fields():
            if form == "prefix":
                continue
            if form not in _SOURCES:
                source.ignore()
                source.add_note("convert-left-out", f"variables from {form} have no counterpart")
                continue
            yield from _all_of(form, source, prefix, readings)


def _all_of(form: str, source: TrackedValue, prefix: str, readings: Readings) -> Iterator[ConvertedVariable]:
    secret = readings.secret(_SOURCES[form], source["name"], source["optional"])
    if secret is None:
        return
    if not secret.keys:
        source.add_note(
            "convert-left-out",
            f"the variables in {secret.name} are not known",
            f"write them one by one: {SECRET_URI}{secret.name}.KEY",
        )
    for key in readings.keys(secret, source):
        yield ConvertedVariable(source, f"{prefix}{key}", f"{SECRET_URI}{secret.name}.{key}")
