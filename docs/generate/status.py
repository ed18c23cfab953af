"""docs/status.md: the status branch, conditions, reasons, events and the log."""

from __future__ import annotations

from docs.generate import reasons
from docs.generate.tables import default, fields, says, table, takes
from reconciler.documents.schema.loader import load_schema

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
    of_resources = [(f"`{name}`", *told) for name, told in reasons.RESOURCES.items()]
    of_sources = [(f"`{name}`", *told) for name, told in reasons.SOURCES.items()]
    parts = [
        ("Conditions", _pairs(("Type", "What it says"), reasons.TYPES)),
        ("Reasons in the conditions of a resource", table(three, of_resources)),
        ("Reasons in the conditions of a source", table(three, of_sources)),
        ("Events", _pairs(("Reason", "What happened"), reasons.EVENTS)),
        ("What stops a workload on this host", _pairs(("Reason", "What it means"), reasons.HOST)),
        ("Why a container ended", _pairs(("Reason", "What it means"), reasons.CONTAINERS)),
        ("Why a replica ends", _pairs(("Reason", "What it means"), reasons.REPLICAS)),
        ("Other reasons", _pairs(("Reason", "What it means"), reasons.ELSEWHERE)),
        ("The log", _pairs(("Line", "When, and with which facts"), reasons.LOG)),
    ]
    return [f"## {title}\n\n{text}" for title, text in parts]


def _pairs(heading: tuple[str, str], told: dict[str, str]) -> str:
    return table(heading, ((f"`{name}`", says) for name, says in told.items()))
