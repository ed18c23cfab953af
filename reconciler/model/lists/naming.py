"""Names of what lists have, as other commands take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_NAMED_BY = ("replica", "name", "key", "rule", "id", "run")
"""The members that name an entry, the first one that it has."""


def format_names(items: Iterable[Mapping[str, Any]]) -> str:
    """The name of each of ``items``, a line each; one that several have, such as steps of a plan, once."""
    return "".join(f"{name}\n" for name in dict.fromkeys(map(_name_item, items)))


def _name_item(item: Mapping[str, Any]) -> str:
    """``workload/shop/api`` for a resource, the name of a replica or snapshot, the key of an event; "" without any.

    An object of Kubernetes has its kind in lower case, as kubectl takes it.
    """
    if "metadata" in item:
        return f"{item['kind'].lower()}/{item['metadata']['name']}"
    if "kind" in item and "name" in item:
        return "/".join(str(item[part]) for part in ("kind", "gvc", "name") if item.get(part))
    return next((str(item[name]) for name in _NAMED_BY if item.get(name)), "")
