"""The requests of all backends and what they take, from the statistics of HAProxy, for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from reconciler.engines.host.dataplane.protocol import RequestCounts
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

SHOW_BACKENDS = "@1 show stat -1 2 -1"
"""Rows of backends alone."""
_PARTS = ("qtime", "ctime", "rtime")
"""Milliseconds in the queue, until the connection, and until the answer, each a mean over the last 1,024 requests."""


def read_request_counts(text: str, keys: Mapping[str, Key]) -> dict[Key, RequestCounts]:
    """The counts of each workload in ``text``, the answer to SHOW_BACKENDS; ``keys`` has the workloads of backends.

    Raises EngineError if the output is of another form.
    """
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("# "))))
    if rows and not {"pxname", "svname", "stot", *_PARTS} <= rows[0].keys():
        raise EngineError("HAProxy shows its state in an unknown form", reason=Reason.PROXY_FAILED)
    counts: dict[Key, RequestCounts] = {}
    for row in rows:
        key = keys.get(row["pxname"] or "")
        if key is None or row["svname"] != "BACKEND":
            continue
        latency = sum(float(row[part] or 0) for part in _PARTS)
        count = RequestCounts(int(row["stot"] or 0), latency=latency)
        counts[key] = counts[key].plus(count) if key in counts else count
    return counts
