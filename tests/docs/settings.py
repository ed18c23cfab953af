"""docs/settings.md: every setting."""

from __future__ import annotations

from reconciler.documents.schemas import load_schema
from tests.docs.tables import default, fields, says, table, takes

HEAD = """\
# Settings

One YAML file: `--settings FILE`, else what `$RECONCILER_SETTINGS` names, else `/etc/reconciler/settings.yaml`. It
is read as strictly as manifests are: an unknown field or a wrong value is told with its line and column, and
nothing starts. Paths are relative to the directory of the file. Durations are a number with ms, s, m, h or d. The
daemon reads the file when it starts; restart it after a change.

A sample with comments is [systemd/settings.yaml](../systemd/settings.yaml).

"""


def page() -> str:
    """The text of the page."""
    rows = (
        (f"`{field.path}`", says(field.schema), takes(field.schema), default(field))
        for field in fields(load_schema("settings"))
    )
    return HEAD + table(("Setting", "What it is", "Takes", "Default"), rows)
