"""Traces over OTLP: one for each run of a source, with a span for each phase and step of it.

A run is recorded in memory, and exported when it has ended: a poll that finds nothing makes no trace, and a receiver
that hangs delays nothing. Without the setting `traces`, nothing is exported; the records keep what happened.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from reconciler import __version__
from reconciler.documents.limits import read_within
from reconciler.logs import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    from reconciler.settings import TraceSettings

MOST_SPANS = 1000
"""Spans of one run; the root has the number of the others in ``spans.dropped``."""
QUEUE = 8192
"""Spans that wait for the receiver; the oldest are dropped."""
EXPORT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
"""Seconds that the end of the daemon waits for the receiver."""

Attributes = dict[str, str | int]


class TraceSpan(msgspec.Struct, frozen=True):
    """A phase below the span ``parent``, from ``begin`` to ``end`` (nanoseconds since the epoch)."""

    name: str
    parent: int
    begin: int
    attributes: Attributes
    end: int = 0
    failed: bool = False


class RunTrace:
    """The spans of a run, the first of which is its root."""

    def __init__(self) -> None:
        self.spans = [TraceSpan("reconcile", -1, time.time_ns(), {})]
        self.dropped = 0
        self.id = secrets.randbits(128) or 1

    def begin(self, name: str, parent: int, attributes: Attributes) -> int:
        """The index of a new span; -1 if there are too many."""
        if len(self.spans) >= MOST_SPANS:
            self.dropped += 1
            return -1
        self.spans.append(TraceSpan(name, parent, time.time_ns(), attributes))
        return len(self.spans) - 1

    def end(self, index: int, *, failed: bool = False) -> None:
        """End the span at ``index``."""
        ended = msgspec.structs.replace(self.spans[index], end=time.time_ns(), failed=failed)
        self.spans[index] = ended


class Exporter:
    """Sends traces to the receiver of ``settings``, in a thread. Raises OSError if a file cannot be read."""

    def __init__(self, settings: TraceSettings, org: str) -> None:
        import logging

        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # The library logs answers of the receiver, and this program logs JSON with what it knows to be no secret.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        headers = {}
        if settings.token_file is not None:
            headers["Authorization"] = f"Bearer {read_within(settings.token_file).decode().strip()}"
        sender = OTLPSpanExporter(
            settings.endpoint,
            certificate_file=str(settings.ca_file) if settings.ca_file is not None else None,
            headers=headers,
            timeout=EXPORT_SECONDS,
        )
        self.counts: Counter[str] = Counter()
        resource = {"service.name": "reconciler", "service.version": __version__, "reconciler.org": org}
        self._ids: Any = make_run_ids()
        self._provider = TracerProvider(resource=Resource(resource), shutdown_on_exit=False, id_generator=self._ids)
        counted: Any = _Counted(sender, self.counts)
        self._provider.add_span_processor(BatchSpanProcessor(counted, max_queue_size=QUEUE))
        self._tracer = self._provider.get_tracer("reconciler", __version__)
        self._runs: dict[str, Context] = {}

    def export(self, source: str, trace: RunTrace, attributes: Mapping[str, str | int]) -> None:
        """Send the ended run of ``source``; ``attributes`` are those of the root."""
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        now = time.time_ns()
        trace.spans[0].attributes.update(attributes, **({"spans.dropped": trace.dropped} if trace.dropped else {}))
        contexts: list[Context] = []
        self._ids.begin_trace(trace.id)
        for span in trace.spans:
            parent = contexts[span.parent] if span.parent >= 0 else None
            otel_span = self._tracer.start_span(span.name, parent, attributes=span.attributes, start_time=span.begin)
            contexts.append(set_span_in_context(otel_span))
            if span.failed:
                otel_span.set_status(Status(StatusCode.ERROR))
            otel_span.end(span.end or now)
        self.counts["made"] += len(trace.spans)
        self._runs[source] = contexts[0]

    def export_status(self, source: str, begin: int) -> None:
        """Add the first status commit after the last run of ``source`` to its trace."""
        if (context := self._runs.pop(source, None)) is not None:
            self._tracer.start_span("status", context, start_time=begin).end()
            self.counts["made"] += 1

    def close(self) -> None:
        """Send what waits, or give up after some seconds."""
        ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)


def make_run_ids() -> RandomIdGenerator:
    """Makes the ids of spans; each root is of the trace that was begun before."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class RunIds(RandomIdGenerator):
        def __init__(self) -> None:
            self._trace_id = 1

        def begin_trace(self, trace_id: int) -> None:
            self._trace_id = trace_id

        def generate_trace_id(self) -> int:
            return self._trace_id

    return RunIds()


class _Counted:
    """An exporter of spans that counts them, and logs when the receiver fails and when it answers again."""

    def __init__(self, sender: SpanExporter, counts: Counter[str]) -> None:
        self._sender = sender
        self._counts = counts
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._sender.export(spans)
        failed = result.name != "SUCCESS"
        self._counts["failed" if failed else "sent"] += len(spans)
        if failed and not self._fails:
            log().warning("traces", message="the receiver of traces does not take them; they are dropped")
        elif self._fails and not failed:
            log().info("traces", message="the receiver takes traces again")
        self._fails = failed
        return result

    def shutdown(self) -> None:
        self._sender.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._sender.force_flush(timeout_millis)


_exporter: Exporter | None = None
_settings: TraceSettings | None = None
_current: ContextVar[tuple[RunTrace, int] | None] = ContextVar("span", default=None)


def configure_tracing(settings: TraceSettings | None, org: str) -> None:
    """Export the traces of runs as ``settings`` demand (None: not at all); what prevents it is logged."""
    global _exporter, _settings
    if settings == _settings:
        return
    close_exporter()
    _settings = settings
    if settings is None:
        return
    try:
        _exporter = Exporter(settings, org)
    except ImportError:
        log().warning("traces", message="there are no traces: install the package with its extra `otlp`")
    except (OSError, ValueError) as error:
        log().warning("traces", message=f"there are no traces: {error}")


def close_exporter() -> None:
    """Send what waits, and export no more."""
    global _exporter, _settings
    exporter, _exporter, _settings = _exporter, None, None
    if exporter is not None:
        exporter.close()


def count_spans() -> Mapping[str, int]:
    """Spans of this process that were made, sent, and failed to be sent."""
    return dict(_exporter.counts) if _exporter is not None else {}


def begin_run() -> None:
    """Begin to record a run; what was recorded and not ended is dropped."""
    _current.set((RunTrace(), 0))


def read_run() -> tuple[RunTrace | None, str]:
    """What was recorded so far of the run that this task works for, and its id where it is exported, else ""."""
    current = _current.get()
    if current is None:
        return None, ""
    return current[0], f"{current[0].id:032x}" if _exporter is not None else ""


def end_run(source: str, attributes: Mapping[str, str | int]) -> None:
    """End the run that this task records, and export it."""
    current = _current.get()
    _current.set(None)
    if current is not None and _exporter is not None:
        _exporter.export(source, current[0], attributes)


@contextmanager
def record_span(name: str, **attributes: str | int) -> Iterator[Attributes]:
    """Record a phase of the run that this task or thread works for, if any; yields its attributes, to add to them.

    Neither messages nor values of resources are attributes: they may hold secrets.
    """
    current = _current.get()
    index = current[0].begin(name, current[1], attributes) if current is not None else -1
    if current is None or index < 0:
        yield attributes
        return
    token = _current.set((current[0], index))
    failed = True
    try:
        yield attributes
        failed = False
    except BaseException as error:
        attributes["error.type"] = type(error).__name__
        raise
    finally:
        _current.reset(token)
        current[0].end(index, failed=failed)


@contextmanager
def status_span(source: str) -> Iterator[None]:
    """Record a status commit of ``source`` as a part of its last run."""
    begin = time.time_ns()
    yield
    if _exporter is not None:
        _exporter.export_status(source, begin)
