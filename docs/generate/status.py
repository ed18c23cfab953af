"""docs/status.md: the status branch, conditions, reasons, events and the log."""

from __future__ import annotations

from collections.abc import Iterator

from docs.generate.log_lines import LINES
from docs.generate.tables import default, fields, table
from reconciler.documents.schema.fields import describe_meaning, describe_values
from reconciler.documents.schema.loader import load_schema
from reconciler.reasons import ConditionType, Reason, Use

HEAD = """\
# Status

The reconciler writes the status of all resources to a branch of the source, by default `reconciler/status`. It never
reads manifests or makes decisions from this branch. If it must not push to the repository (`readOnly`, or
`push: false`), the branch is in a separate repository in the state directory. The records contain the same status, for
`reconciler get`, `describe` and `events`.

    README.md                       a page for people: commit, what waits, workloads, counts
    reconciler.yaml                 the source as a whole
    shop/workload/api.yaml          one file for each resource: GVC/KIND/NAME.yaml
    _org/gvc/shop.yaml              GVCs, and all other resources of the org

A directory that gets more than 512 entries is divided into buckets by a hash of their names, so that a commit never
writes a long directory anew: `shop/workload/_3f/api.yaml`, `_9a/shop/workload/api.yaml`. It remains divided as long as
it exists. The links in `README.md` lead to the files.

The first change is committed at once, later ones at most once per `status.interval`. Only changed files are written;
files of other writers stay unchanged. Commit messages contain `[skip ci]`, and after 1,000 commits the history starts
again. The trailer `Audit-Log` of a commit has the newest hash of the [audit log](http.md) at that time; entries of the
log alone make no commit.

Every 200 commits the daemon packs the objects that it wrote, and merges its small packs. In a repository in the state
directory it also removes the former history. In your repositories only `git gc` does that; `reconciler doctor` warns
when one needs it.
"""

OUTCOMES = """\
## Health

`Healthy`, `Recorded`, `Loading`, `Unhealthy`, `Deleting`, `Unknown`. A resource has the worst
health of its locations, and a GVC the worst health of its members.

`Recorded` is the health of workloads and volume sets at locations of the engine `recorded`: they are only
recorded, and nothing runs. It counts as ready: dependents of such a resource do not wait for it, and neither does
`reconciler apply --wait`.

The message of a condition says how a program ended, such as `ended with 1 (Error)`, and never what it wrote: a line of
a log may have a secret, and status files, events and notifications reach more people than may read logs. `reconciler
status` and `describe` show the last line as text to those who may read the logs of this machine. So does the page to
those who have the permission `readLogs`.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *_files(), OUTCOMES, *_reasons()])


def _files() -> list[str]:
    parts = []
    for title, name in (("The file of a resource", "status"), ("The file of the source", "run-status")):
        schema = load_schema(name)
        rows = (
            (f"`{f.path}`", describe_meaning(f.schema), describe_values(f.schema), default(f)) for f in fields(schema)
        )
        parts.append(f"## {title}\n\n" + table(("Field", "What it is", "Takes", "Default"), rows))
    return parts


def _meaning(type_: ConditionType) -> str:
    return f"{type_.meaning} The resource is Unhealthy meanwhile." if type_.degrades else type_.meaning


def _reasons() -> list[str]:
    three = ("Reason", "What it means", "What to do")
    two = ("Reason", "What it means")
    parts = [
        ("Conditions", table(("Type", "What it means"), ((f"`{each}`", _meaning(each)) for each in ConditionType))),
        ("Reasons in the conditions of a resource", table(three, _texts(Use.RESOURCE))),
        ("Reasons in the conditions of a source", table(three, _texts(Use.SOURCE))),
        ("Events", table(("Reason", "Type", "What happened"), _texts(Use.EVENT))),
        ("What stops a workload on this host", table(two, _texts(Use.WORKLOAD))),
        ("Why a container ended", table(two, _texts(Use.CONTAINER))),
        ("Why a replica ends", table(two, _texts(Use.REPLICA))),
        ("Other reasons", table(two, _texts(Use.OTHER))),
        (
            "The log",
            table(
                ("Line", "When, and with which facts"),
                ((f"`{line}`", description) for line, description in LINES.items()),
            ),
        ),
    ]
    return [f"## {title}\n\n{text}" for title, text in parts]


def _texts(use: Use) -> Iterator[tuple[str, ...]]:
    """A row for each reason that has the use."""
    for reason in Reason:
        text = reason.texts.get(use)
        if text is None:
            continue
        if use is Use.EVENT:
            yield f"`{reason}`", text.type, text.meaning
        elif text.advice:
            yield f"`{reason}`", text.meaning, text.advice
        else:
            yield f"`{reason}`", text.meaning
