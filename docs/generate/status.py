"""docs/status.md: the status branch, conditions, reasons, events and the log."""

from __future__ import annotations

from collections.abc import Iterator

from docs.generate.log_lines import LINES
from docs.generate.tables import default, fields, says, table, takes
from reconciler.documents.schema.loader import load_schema
from reconciler.reasons import ConditionType, Reason, Use

HEAD = """\
# Status

What the reconciler did is written to a branch of the source, `reconciler/status` unless the settings say otherwise.
It is never taken for a source, and nothing is decided by what stands there. Where the repository must not be pushed
to (`readOnly`, or `push: false`) the branch lives in a repository of its own in the state directory. The same is in
the records, for `reconciler get`, `describe` and `events`.

    README.md                       counts, and what is not ready (100 at most), for people
    reconciler.yaml                 the source as a whole
    shop/workload/api.yaml          one file a resource: GVC/KIND/NAME.yaml
    _org/gvc/shop.yaml              GVCs, and whatever else belongs to the org

The first change is committed at once, further ones at most once per `status.interval`; only files that changed are
rewritten, files of others stay as they are. Commits say `[skip ci]`, and after 1,000 of them the history begins
anew.
"""

OUTCOMES = """\
## Health

`Healthy`, `Recorded`, `Loading`, `Unhealthy`, `Deleting`, `Unknown`. A resource is as well as the worst of its
locations, and a GVC as the worst of its members.

`Recorded` is the health of workloads and volume sets at locations of the engine `recorded`: they are written down, and
nothing runs. It counts as ready: what depends on such a resource does not wait for it, and `reconciler apply --wait`
ends.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *_files(), OUTCOMES, *_reasons()])


def _files() -> list[str]:
    parts = []
    for title, name in (("The file of a resource", "status"), ("The file of the source", "run-status")):
        schema = load_schema(name)
        rows = ((f"`{f.path}`", says(f.schema), takes(f.schema), default(f)) for f in fields(schema))
        parts.append(f"## {title}\n\n" + table(("Field", "What it is", "Takes", "Default"), rows))
    return parts


def _reasons() -> list[str]:
    three = ("Reason", "What it means", "What to do")
    two = ("Reason", "What it means")
    parts = [
        ("Conditions", table(("Type", "What it means"), ((f"`{each}`", each.meaning) for each in ConditionType))),
        ("Reasons in the conditions of a resource", table(three, _texts(Use.RESOURCE))),
        ("Reasons in the conditions of a source", table(three, _texts(Use.SOURCE))),
        ("Events", table(("Reason", "Type", "What happened"), _texts(Use.EVENT))),
        ("What stops a workload on this host", table(two, _texts(Use.WORKLOAD))),
        ("Why a container ended", table(two, _texts(Use.CONTAINER))),
        ("Why a replica ends", table(two, _texts(Use.REPLICA))),
        ("Other reasons", table(two, _texts(Use.OTHER))),
        (
            "The log",
            table(("Line", "When, and with which facts"), ((f"`{line}`", says) for line, says in LINES.items())),
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
