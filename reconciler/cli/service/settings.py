"""The settings of a service that runs what `reconciler up` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reconciler.cli.local.followed_source import choose_source, read_declared
from reconciler.cli.local_settings import (
    FOR_TERMINALS,
    build_settings,
)
from reconciler.cli.options import DEFAULT_ORG
from reconciler.documents.writer import render_document
from reconciler.errors import RefusedError
from reconciler.local_state import SETTINGS_FILE, find_settings_of, find_state, find_state_base
from reconciler.settings.types import SERVICE_STATE

_HEAD = """\
# Settings for the service: reconciler install --settings FILE. docs/settings.md has all of them.
# The service runs as the user reconciler. It cannot read homes: name a remote, or a repository in /srv/git.
"""


def render_service_settings(source: str, org: str) -> str:
    """The text of the settings for ``source``: those that `up` wrote, with the state directory of the service.

    Without an ``org``, it is the one that the repository names.

    Raises UsageError and RefusedError.
    """
    value = _find_written(source)
    if value is None:
        followed = choose_source(source)
        declared = read_declared(followed)
        value = build_settings(followed, declared.locations, org or declared.org or DEFAULT_ORG)
    [entry] = value["sources"]
    if Path(entry["url"]).is_relative_to(find_state_base()):
        raise RefusedError(
            "`up` converts files here, and nobody can push to what it follows: make the manifests yours with "
            "`reconciler convert --commit --location local FILE`, and write the settings then"
        )
    fields = {name: part for name, part in value.items() if name not in FOR_TERMINALS}
    # A poll each 5 seconds is for work on a machine; the status is pushed to a forge at its usual interval.
    fields["sources"] = [{name: part for name, part in entry.items() if name not in ("interval", "status")}]
    ordered = {"org": fields.pop("org"), "state": str(SERVICE_STATE), **fields}
    return _HEAD + render_document(ordered)


def _find_written(source: str) -> dict[str, Any] | None:
    """The settings that `up` wrote for ``source``, as plain values; None where there are none."""
    import yaml

    directory = Path(source)
    file = find_settings_of(directory.resolve()) if directory.is_dir() else find_state(source) / SETTINGS_FILE
    if file is None or not file.exists():
        return None
    value: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return value
