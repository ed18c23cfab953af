"""Traces of runs, as a receiver of OTLP over HTTP gets them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from reconciler import tracing
from tests.support.sandbox import DaemonSandbox, eventually

FILES = {
    "gvc.yaml": "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n",
    "secret.yaml": "kind: secret\nname: db\ntype: dictionary\ndata: {password: hunter2-canary}\n",
}


class Receiver(ThreadingHTTPServer):
    """Takes traces; ``status`` is its answer, and while ``answers`` is not set there is none."""

    daemon_threads = True

    def __init__(self) -> None:
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()
        self.bodies: list[bytes] = []
        self.credentials: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    @property
    def spans(self) -> list[Any]:
        """All spans that were received, in the order of their ends."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for each in requests
            for found in each.resource_spans
            for scope in found.scope_spans
            for span in scope.spans
        ]

    def trace(self, commit: str) -> dict[str, list[Any]]:
        """The spans of the run of ``commit`` by name; empty until its status is written."""
        roots = [span for span in self.spans if attributes(span).get("vcs.ref.head.revision") == commit]
        spans: dict[str, list[Any]] = {}
        for value in self.spans:
            if roots and value.trace_id == roots[0].trace_id:
                spans.setdefault(value.name, []).append(value)
        return spans if "status" in spans else {}


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.credentials.add(self.headers.get("Authorization", ""))
        self.server.answers.wait()
        if self.server.status == 200:
            self.server.bodies.append(body)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.answers.set()
        server.shutdown()


@pytest.fixture
def sandbox(tmp_path: Path, receiver: Receiver) -> DaemonSandbox:
    (tmp_path / "token").write_text("receiver-token\n")
    return DaemonSandbox(tmp_path, FILES, traces={"endpoint": receiver.url, "tokenFile": str(tmp_path / "token")})


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span."""
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_a_run_is_a_trace_with_its_commit_phases_and_steps(sandbox: DaemonSandbox, receiver: Receiver) -> None:
    with sandbox.daemon(OTEL_BSP_SCHEDULE_DELAY="100") as daemon:
        first = sandbox.repo.git("rev-parse", "main")
        trace = eventually(lambda: receiver.trace(first), "the first run is received")
        [root] = trace["reconcile"]
        assert attributes(root) == {
            "reconciler.source": "main",
            "reconciler.reason": "start",
            "reconciler.outcome": "applied",
            "vcs.ref.head.revision": first,
            "reconciler.resources.created": 2,
        }
        steps = [attributes(value) for value in trace["step"]]
        assert {step["reconciler.key"] for step in steps} == {"gvc/shop", "secret/db"}
        assert {step["reconciler.result"] for step in steps} == {"ok"}
        assert {name: len(spans) for name, spans in trace.items()} == {
            "load": 1,
            "plan": 1,
            "step": 2,
            "status": 1,
            "reconcile": 1,
        }
        below = [span for name, spans in trace.items() if name != "reconcile" for span in spans]
        assert {value.parent_span_id for value in below} == {root.span_id}
        assert all(
            root.start_time_unix_nano <= value.start_time_unix_nano <= value.end_time_unix_nano for value in below
        )
        second = sandbox.repo.commit({"gvc.yaml": FILES["gvc.yaml"] + "description: new\n"})
        eventually(lambda: receiver.trace(second), "the second run is received")
        assert daemon.stop() == 0
    assert len({span.trace_id for span in receiver.spans}) == 2, "polls that find nothing make no trace"
    assert receiver.credentials == {"Bearer receiver-token"}
    assert not [body for body in receiver.bodies if b"hunter2-canary" in body]
    assert "receiver-token" not in daemon.log_file.read_text()


def test_a_receiver_that_hangs_delays_neither_runs_nor_the_end(sandbox: DaemonSandbox, receiver: Receiver) -> None:
    receiver.answers.clear()
    with sandbox.daemon(OTEL_BSP_SCHEDULE_DELAY="100") as daemon:
        eventually(lambda: receiver.credentials, "the daemon sends a trace")
        commit = sandbox.repo.commit({"gvc.yaml": FILES["gvc.yaml"] + "description: new\n"})
        eventually(lambda: sandbox.applied(commit), "the next commit is applied")
        assert daemon.stop() == 0


def test_a_receiver_that_fails_is_logged_once(sandbox: DaemonSandbox, receiver: Receiver) -> None:
    receiver.status = 400
    with sandbox.daemon(OTEL_BSP_SCHEDULE_DELAY="100") as daemon:
        eventually(lambda: daemon.logged("traces", level="warning"), "the failure is logged")
        receiver.status = 200
        commit = sandbox.repo.commit({"gvc.yaml": FILES["gvc.yaml"] + "description: new\n"})
        eventually(lambda: receiver.trace(commit), "the next run is received")
        eventually(lambda: daemon.logged("traces", level="info"), "that it works again is logged")
        assert len(daemon.logged("traces")) == 2
        assert daemon.stop() == 0
    assert all(line.startswith("{") for line in daemon.log_file.read_text().splitlines())


def test_settings_that_give_no_traces_are_logged(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(
        tmp_path, FILES, traces={"endpoint": "http://127.0.0.1:9/", "tokenFile": str(tmp_path / "none")}
    )
    with sandbox.daemon() as daemon:
        [line] = eventually(lambda: daemon.logged("traces"), "the fault is logged")
        assert "there are no traces: " in line["message"]
        eventually(lambda: sandbox.applied(sandbox.repo.git("rev-parse", "main")), "the daemon works")


def test_a_run_has_a_limit_of_spans(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOST_SPANS", 3)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    from reconciler.settings import TraceSettings

    tracing.configure_tracing(TraceSettings(receiver.url), "acme")
    try:
        tracing.begin_run()
        with tracing.record_span("load"):
            for number in range(5):
                with pytest.raises(ValueError), tracing.record_span("step", number=number):
                    raise ValueError("hunter2-canary")
        tracing.end_run("main", {"reconciler.outcome": "applied"})
        spans = eventually(lambda: receiver.spans, "the trace is received")
    finally:
        tracing.close_exporter()
    root = next(each for each in spans if each.name == "reconcile")
    step = next(each for each in spans if each.name == "step")
    assert len(spans) == 3
    assert attributes(root) == {"reconciler.outcome": "applied", "spans.dropped": 4}
    assert attributes(step)["error.type"] == "ValueError"
    assert step.status.code == step.status.STATUS_CODE_ERROR
    assert not [body for body in receiver.bodies if b"hunter2-canary" in body]


def test_without_the_setting_nothing_is_exported() -> None:
    tracing.begin_run()
    with tracing.record_span("load") as found:
        found["more"] = 1
    trace, trace_id = tracing.read_run()
    assert trace is not None
    assert ([span.name for span in trace.spans], trace_id) == (["reconcile", "load"], "")
    tracing.end_run("main", {})
    assert (tracing.count_spans(), tracing.read_run()) == ({}, (None, ""))
