"""docs/settings.md: every setting."""

from __future__ import annotations

from docs.generate.tables import default, fields, says, table, takes
from reconciler.documents.schema.loader import load_schema

HEAD = """\
# Settings

One YAML file: `--settings FILE`, else what `$RECONCILER_SETTINGS` names, else `/etc/reconciler/settings.yaml`. It
is read as strictly as manifests are: an unknown field or a wrong value is told with its line and column, and
nothing starts. Paths are relative to the directory of the file. Durations are a number with ms, s, m, h or d.

The daemon takes a change over by itself within seconds, or at once on SIGHUP (`systemctl reload`), between two runs
and as a whole: where anything is wrong it says so (a condition that `reconciler doctor` shows, an event, the log) and
goes on by what it had. A source that is added is followed; what a removed one owned stays where it is until it is
adopted. Only `state` needs a restart.

A sample with comments is [systemd/settings.yaml](../systemd/settings.yaml).

"""


def page() -> str:
    """The text of the page."""
    rows = (
        (f"`{field.path}`", says(field.schema), takes(field.schema), default(field))
        for field in fields(load_schema("settings"))
    )
    return HEAD + table(("Setting", "What it is", "Takes", "Default"), rows)
