"""Fields of objects that the API server never changes: what must be made anew for them, or is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

from reconciler.engines.kubernetes.client.objects import (
    DEPLOYMENT,
    SERVICE,
    STATEFUL_SET,
    KubeObject,
    ObjectKind,
    kind_of,
)
from reconciler.engines.kubernetes.status.fields import parse_quantity, read_field


class _Field(NamedTuple):
    """A field that cannot change; without it, the server takes ``default``.

    ``exact``: the server adds nothing to it, so that a member less is a change, too.
    """

    path: str
    default: Any = None
    exact: bool = False


_SELECTOR = _Field("spec.selector", exact=True)
_IMMUTABLE: dict[ObjectKind, tuple[_Field, ...]] = {
    DEPLOYMENT: (_SELECTOR,),
    STATEFUL_SET: (
        _SELECTOR,
        _Field("spec.serviceName", ""),
        _Field("spec.podManagementPolicy", "OrderedReady"),
        _Field("spec.volumeClaimTemplates", []),
    ),
}
"""Of the kinds that the engine applies. A CronJob makes its Jobs, and a StatefulSet its claims, of which the manifest
has the rules; a Secret has another name for each content."""
_NO_ADDRESS = "None"


def list_immutable_changes(before: KubeObject, after: KubeObject) -> list[str]:
    """The paths of the fields that differ between an object and what is to be applied, and that cannot change.

    ``before`` may have what the server adds: a field that ``after`` leaves to it is no change.
    """
    kind = kind_of(after)
    paths = [field.path for field in _IMMUTABLE.get(kind, ()) if _has_changed(field, before, after)]
    if kind is SERVICE and _has_other_address(before, after):
        paths.append("spec.clusterIP")
    return paths


def _has_changed(field: _Field, before: KubeObject, after: KubeObject) -> bool:
    past, present = (read_field(item, *field.path.split(".")) for item in (before, after))
    past = field.default if past is None else past
    present = field.default if present is None else present
    return _asks_more(past, present) or (field.exact and _asks_more(present, past))


def _has_other_address(before: KubeObject, after: KubeObject) -> bool:
    """Whether a Service gets an address, or loses it; one that names none leaves it as it is."""
    past, present = (read_field(item, "spec", "clusterIP") for item in (before, after))
    return bool(past and present) and past != present and _NO_ADDRESS in (past, present)


def _asks_more(past: Any, present: Any) -> bool:
    """Whether ``present`` asks for something that ``past`` does not have."""
    if isinstance(present, dict):
        return not isinstance(past, dict) or any(_asks_more(past.get(name), part) for name, part in present.items())
    if isinstance(present, list):
        if not isinstance(past, list) or len(past) != len(present):
            return True
        return any(_asks_more(one, other) for one, other in zip(past, present, strict=True))
    if isinstance(past, str) and isinstance(present, str) and past != present:
        size = parse_quantity(past)
        return not size or size != parse_quantity(present)
    return bool(past != present)
