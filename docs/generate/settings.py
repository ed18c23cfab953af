"""docs/settings.md: every setting."""

from __future__ import annotations

from docs.generate.tables import default, fields, table
from reconciler.documents.schema.fields import describe_meaning, describe_values
from reconciler.documents.schema.loader import load_schema

HEAD = """\
# Settings

One YAML file: `--settings FILE`, else the path in `$RECONCILER_SETTINGS`, else `/etc/reconciler/settings.yaml`. It
is read as strictly as manifests: an unknown field or a wrong value is reported with its line and column, and nothing
starts. Paths are relative to the directory of the file. Durations are a number with ms, s, m, h or d.

The daemon reloads a changed file within a second, or at once on SIGHUP (`systemctl reload`), between two runs and as a
whole. If the file is invalid, the daemon reports it (a condition that `reconciler doctor` shows, an event, the log)
and keeps the old settings. An added source is followed; the resources of a removed one stay until another source
adopts them. Only `state` needs a restart.

A sample with comments is [systemd/settings.yaml](../systemd/settings.yaml).

"""


def page() -> str:
    """The text of the page."""
    rows = (
        (f"`{field.path}`", describe_meaning(field.schema), describe_values(field.schema), default(field))
        for field in fields(load_schema("settings"))
    )
    return HEAD + table(("Setting", "What it is", "Takes", "Default"), rows)
