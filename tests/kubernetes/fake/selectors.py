"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.kubernetes.fake.errors import Object, Resource, bad_request

Selector = Callable[[Object], bool]
"""Whether an object is selected."""

_SET = re.compile(r"^\s*([\w./-]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([\w./-]+)\s*(==|=|!=)\s*([\w.-]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([\w./-]+)\s*$")
_COMMAS = re.compile(r",(?![^(]*\))")

FIELDS = {
    "Pod": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    "Secret": ("type",),
    "Event": (
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
        "source",
        "reportingComponent",
    ),
    "Namespace": ("status.phase",),
    "Job": ("status.successful",),
}
"""Kind → fields that a selector can have, beside name and namespace."""


def label_selector(text: str) -> Selector:
    """Objects with labels as ``text`` describes."""
    requirements = [_label_requirement(part) for part in _COMMAS.split(text) if part.strip()]

    def selects(value: Object) -> bool:
        labels = value["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return selects


def _label_requirement(text: str) -> Callable[[dict[str, str]], bool]:
    if match := _SET.match(text):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(text):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS.match(text):
        absent, key = match.groups()
        return lambda labels: (key in labels) is not bool(absent)
    raise bad_request(f"unable to parse requirement: found '{text}'")


def field_selector(resource: Resource, text: str) -> Selector:
    """Objects with fields as ``text`` describes."""
    requirements = []
    for part in filter(None, text.split(",")):
        match = re.match(r"^([\w.\[\]-]+)(==|=|!=)(.*)$", part)
        if not match:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        allowed = ("metadata.name", "metadata.namespace", *FIELDS.get(resource.kind, ()))
        if match[1] not in allowed:
            raise bad_request(_refuse_field(resource, match[1]))
        requirements.append((match[1].split("."), match[2] != "!=", match[3]))

    def selects(value: Object) -> bool:
        return all((_field_of(value, path) == value_asked) is equal for path, equal, value_asked in requirements)

    return selects


def _refuse_field(resource: Resource, field: str) -> str:
    if resource.kind in FIELDS:
        return f"field label not supported: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _field_of(value: Any, path: list[str]) -> str:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def matches_selector(selector: Object, labels: dict[str, str]) -> bool:
    """Whether ``labels`` are those of a LabelSelector, as controllers use it."""
    expected = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in expected.items())
