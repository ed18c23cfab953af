"""Whether the daemon works: for load balancers without a credential, and in figures for Prometheus."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.api.table import PUBLIC, Operation
from reconciler.engines.reading import ReplicaRow
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.queries.top import ReplicaReader
from reconciler.reasons import ConditionType
from reconciler.records.store import Records


async def read_health(call: Call) -> Response:
    """200 while the daemon's event loop turns."""
    if not call.api.is_alive():
        raise Problem(503, "the daemon's event loop did not turn within the last 10 s")
    return call.respond({"status": "ok"})


async def read_readiness(call: Call) -> Response:
    """200 once the records are open and every source was read, also if what was read is refused."""
    if not call.api.is_alive():
        raise Problem(503, "the daemon's event loop did not turn within the last 10 s")
    records = call.reader.records
    unread = [source.name for source in call.api.settings.sources if not _is_read(records, source.name)]
    if unread:
        raise Problem(503, f"not read yet: {', '.join(unread)}")
    return call.respond({"status": "ready"})


def _is_read(records: Records, source: str) -> bool:
    """Whether a revision of ``source`` was read: it was accepted, or its conditions say that it was refused."""
    if records.sources.get(source) is not None:
        return True
    return any(
        condition.type == ConditionType.SOURCE_REACHABLE and condition.status
        for condition in records.conditions.get(source)
    )


async def read_metrics(call: Call) -> Response:
    """The metrics of the daemon; they name all sources, so they take ``view`` on the org."""
    # Loaded by the first scrape: it takes more than a megabyte.
    from reconciler.api.metrics import CONTENT_TYPE, Scrape, metrics_page

    call.require("view", Key(Kind.ORG, "", call.org))
    api = call.api
    # A reader of its own: the one for replicas measures CPU between its calls.
    replicas = ReplicaReader(api.settings)
    replica_rows: list[ReplicaRow] = []
    # The daemon is measured too, and that a location does not answer is among its conditions.
    with suppress(EngineError):
        replica_rows = await asyncio.to_thread(replicas.read)
    with call.reader.snapshot():
        names = tuple(source.name for source in api.settings.sources)
        listed = api.settings.api.metrics.resources if api.settings.api is not None else ()
        scrape = Scrape(
            call.reader.records,
            names,
            api.is_alive(),
            api.clock.now(),
            replicas.locations,
            replica_rows,
            api.measured(),
            listed,
        )
        page = metrics_page(scrape)
    return Response(page, headers={"Content-Type": CONTENT_TYPE})


OPERATIONS = (
    Operation(
        "GET", "/healthz", read_health, "Whether the daemon works.", PUBLIC, {200: "It does.", 503: "It does not."}
    ),
    Operation(
        "GET", "/readyz", read_readiness, "Whether every source was read.", PUBLIC, {200: "Yes.", 503: "Not yet."}
    ),
    Operation("GET", "/metrics", read_metrics, "Read the metrics of the daemon.", "view", media="text/plain"),
)
