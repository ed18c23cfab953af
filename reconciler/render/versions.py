"""Versions and blame of a resource as tables and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.model.revision import shorten_id
from reconciler.planning.versions import BlamedField, ResourceHistory, ResourceVersion
from reconciler.render.layout import strip_control, table_text
from reconciler.render.plan.summary import one_line
from reconciler.render.style import TextStyle
from reconciler.times import format_iso_time

OLDER = "older"
"""Stands for a commit that the search did not reach."""
MOST_FIELDS = 3
"""The most changed fields that a line names, where it is not wide."""
_SHOWN_VALUE = 40
"""The most characters of a value in a table that is not wide."""


def version_table(versions: Sequence[ResourceVersion], style: TextStyle) -> str:
    """A line for each version below a heading; ``""`` if there are none."""
    rows = (
        (
            shorten_id(version.commit),
            format_iso_time(version.at),
            strip_control(version.author),
            strip_control(name_fields(version, None if style.wide else MOST_FIELDS)),
            strip_control(version.subject),
        )
        for version in versions
    )
    return table_text(("COMMIT", "TIME", "AUTHOR", "CHANGED", "SUBJECT"), rows, style)


def blame_table(fields: Sequence[BlamedField], style: TextStyle) -> str:
    """A line for each field below a heading; ``""`` if there are none."""
    rows = []
    for field in fields:
        version, value = field.version, strip_control(one_line(field.value))
        if not style.wide and len(value) > _SHOWN_VALUE:
            value = f"{value[: _SHOWN_VALUE - 1]}…"
        commit, author, at = (
            (shorten_id(version.commit), strip_control(version.author), format_iso_time(version.at))
            if version is not None
            else (OLDER, "", "")
        )
        rows.append((str(field.line), commit, author, at, strip_control(field.path), value))
    return table_text(("LINE", "COMMIT", "AUTHOR", "TIME", "FIELD", "VALUE"), rows, style)


def name_fields(version: ResourceVersion, most: int | None = None) -> str:
    """The fields that ``version`` changed, at most ``most`` by name; ``added`` or ``removed`` for all of them."""
    if version.added or version.removed:
        return "added" if version.added else "removed"
    named = ", ".join(version.fields[:most])
    left = len(version.fields) - len(version.fields[:most])
    return f"{named} and {left} more" if left else named


def describe_search(history: ResourceHistory) -> str:
    """A sentence about commits that were not searched; "" where all were."""
    return "" if history.is_whole else f"what is older than the last {history.commits} commits was not searched"


def versions_document(history: ResourceHistory) -> dict[str, Any]:
    """The versions as JSON values; times are UTC."""
    return {**_build_head(history), "versions": list(map(_build_version, history.versions))}


def blame_document(history: ResourceHistory) -> dict[str, Any]:
    """The fields as JSON values; ``commit``, ``author`` and ``time`` are null where the commit is older."""
    fields = [
        {
            "path": field.path,
            "value": field.value,
            "line": field.line,
            "commit": field.version.commit if field.version is not None else None,
            "author": field.version.author if field.version is not None else None,
            "time": format_iso_time(field.version.at) if field.version is not None else None,
        }
        for field in history.fields
    ]
    return {**_build_head(history), "fields": fields}


def _build_head(history: ResourceHistory) -> dict[str, Any]:
    return {
        "key": str(history.key),
        "source": history.source,
        "file": history.path,
        "commits": history.commits,
        "whole": history.is_whole,
    }


def _build_version(version: ResourceVersion) -> dict[str, Any]:
    change = "added" if version.added else "removed" if version.removed else "changed"
    return {
        "commit": version.commit,
        "time": format_iso_time(version.at),
        "author": version.author,
        "subject": version.subject,
        "change": change,
        "fields": list(version.fields),
    }
