"""The four forms of probes against real servers and programs: health, and the messages of failures."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError
from grpc_health.v1.health_pb2 import HealthCheckResponse
from hypothesis import assume, example, given
from hypothesis import strategies as st

from reconciler.clock import SystemClock
from reconciler.engines.host.decisions.replica import ReplicaContainer
from reconciler.engines.host.probes.checks import ProbeResult, ProbeTarget, explain_failure, run_probe
from reconciler.engines.host.probes.grpc import serving_status
from reconciler.engines.host.probes.prober import Prober
from reconciler.engines.host.probes.response import ProbeError
from reconciler.engines.host.probes.state import ProbeKind, Verdict
from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Probe
from reconciler.reasons import Reason
from tests.engines.host.probes.servers import certificate, closed_port, health_server, serve_statuses, speaker
from tests.support.cases import cases
from tests.support.programs import only_root

PLACE = ContainerId(Key(Kind.WORKLOAD, "shop", "web"), "web-1", "main")
DECLARED = 8080


class ShellRuntime:
    """Runs programs on this host, as a runtime does within a container that has the processes ``pids``."""

    def __init__(self, *pids: int) -> None:
        self.pids = frozenset(pids)

    def find_processes(self, place: ContainerId) -> frozenset[int]:
        """As Runtime.find_processes."""
        assert place == PLACE
        return self.pids

    async def exec(self, place: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """As Runtime.exec."""
        assert place == PLACE
        try:
            child = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        except FileNotFoundError:
            raise EngineError(f"There is no {argv[0]}.", reason=Reason.EXEC_FAILED) from None
        try:
            output, _ = await asyncio.wait_for(child.communicate(), timeout)
        except TimeoutError:
            child.kill()
            await child.wait()
            return ExecResult(137, "", timed_out=True)
        return ExecResult(child.returncode or 0, output.decode())


def asked_of(port: int, *further: int) -> ProbeTarget:
    """A container whose first declared port is really ``port``."""
    ports = {DECLARED + number: each for number, each in enumerate((port, *further))}
    return ProbeTarget(PLACE, ContainerSpec("main", ports=tuple(ports)), ports)


def answer(form: dict[str, Any], port: int, *further: int, **tunables: int) -> ProbeResult:
    """What a probe in the form of a manifest makes of a replica with these ports."""
    probe = msgspec.convert({**form, **tunables}, Probe)

    async def scenario() -> ProbeResult:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            answered = await run_probe(ShellRuntime(), asked_of(port, *further), probe)
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return answered

    return asyncio.run(scenario())


@pytest.mark.parametrize("case", cases("probes/http.yaml"))
def test_the_http_status_decides_a_probe(case: dict[str, Any]) -> None:
    sends = case["sends"].encode() + b"x" * case.get("padding", 0)
    with speaker(sends, case.get("open", False)) as port:
        message = case.get("message", "")
        assert answer({"httpGet": {"path": "/healthz"}}, port) == ProbeResult(not message, message)


@pytest.fixture
def web() -> Iterator[ThreadingHTTPServer]:
    with serve_statuses() as server:
        yield server


def test_http_requests_follow_the_manifest(web: ThreadingHTTPServer) -> None:
    headers = [{"name": "Host", "value": "shop.example.com"}, {"name": "x-token", "value": "ä b"}]
    form = {"httpGet": {"path": "/200/a b?c=d e&f=%20#part", "port": DECLARED, "httpHeaders": headers}}
    assert answer(form, web.server_port) == ProbeResult(True)
    ((path, seen),) = web.seen  # type: ignore[attr-defined]
    assert path == "/200/a%20b?c=d%20e&f=%20"
    assert seen.get_all("Host") == ["shop.example.com"]
    assert seen["X-Token"].encode("latin-1").decode() == "ä b"
    assert seen["Connection"] == "close"
    assert answer({"httpGet": {}}, web.server_port) == ProbeResult(True)
    path, seen = web.seen[1]  # type: ignore[attr-defined]
    assert (path, seen["Host"], seen["User-Agent"]) == ("/", f"127.0.0.1:{web.server_port}", "reconciler-probe")


def test_each_probe_connects_anew_so_that_a_program_that_accepts_nothing_fails(web: ThreadingHTTPServer) -> None:
    connects = count_connects(web)
    for _ in range(3):
        assert answer({"httpGet": {"path": "/200"}}, web.server_port) == ProbeResult(True)
    assert len(connects) == len(web.seen) == 3  # type: ignore[attr-defined]


def count_connects(server: ThreadingHTTPServer) -> list[Any]:
    """The addresses from which ``server`` is connected to from now on."""
    addresses: list[Any] = []
    accept = server.get_request

    def counted() -> tuple[socket.socket, Any]:
        connection, address = accept()
        addresses.append(address)
        return connection, address

    server.get_request = counted  # type: ignore[method-assign]
    return addresses


def test_a_header_with_a_line_break_is_not_sent(web: ThreadingHTTPServer) -> None:
    form = {"httpGet": {"httpHeaders": [{"name": "a", "value": "b\r\nc: d"}]}}
    assert answer(form, web.server_port) == ProbeResult(False, "a header that cannot be sent")
    assert web.seen == []  # type: ignore[attr-defined]


def test_redirects_within_the_replica_are_followed(web: ThreadingHTTPServer) -> None:
    with serve_statuses() as other:
        second = f"/to/http://127.0.0.1:{other.server_port}/503"
        assert answer({"httpGet": {"path": "/to//500"}}, web.server_port) == ProbeResult(False, "HTTP 500")
        assert answer({"httpGet": {"path": second}}, web.server_port, other.server_port) == ProbeResult(
            False, "HTTP 503"
        )
        assert answer({"httpGet": {"path": second}}, web.server_port) == ProbeResult(True), "the port of someone else"
        assert len(other.seen) == 1  # type: ignore[attr-defined]


def test_redirects_in_a_circle_end(web: ThreadingHTTPServer) -> None:
    with speaker(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n") as port:
        assert answer({"httpGet": {}}, port) == ProbeResult(False, "more than 10 redirects")


def test_https_takes_any_certificate(tmp_path: Path) -> None:
    with serve_statuses(certificate(tmp_path)) as server:
        form = {"httpGet": {"path": "/200", "scheme": "HTTPS"}}
        assert answer(form, server.server_port, timeoutSeconds=30) == ProbeResult(True)
        named = {"httpGet": {"scheme": "HTTPS", "httpHeaders": [{"name": "Host", "value": "shop.example.com:443"}]}}
        assert answer(named, server.server_port, timeoutSeconds=30) == ProbeResult(True)


@pytest.mark.parametrize("name", ["[::1]", ".example.com", "ä.example.com", "a" * 70])
def test_https_takes_any_host_header(name: str, tmp_path: Path) -> None:
    with serve_statuses(certificate(tmp_path)) as server:
        form = {"httpGet": {"scheme": "HTTPS", "httpHeaders": [{"name": "Host", "value": name}]}}
        assert answer(form, server.server_port, timeoutSeconds=30) == ProbeResult(True)


def test_https_reports_a_server_without_tls(web: ThreadingHTTPServer) -> None:
    answered = answer({"httpGet": {"scheme": "HTTPS"}}, web.server_port, timeoutSeconds=30)
    assert not answered.ok
    assert answered.message.startswith("TLS failed: ")


@pytest.mark.parametrize("form", [{"httpGet": {}}, {"tcpSocket": {}}, {"grpc": {}}], ids=lambda form: next(iter(form)))
def test_a_port_without_a_listener_refuses(form: dict[str, Any]) -> None:
    assert answer(form, closed_port(), timeoutSeconds=30) == ProbeResult(False, "connection refused")


def test_tcp_is_well_where_someone_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert answer({"tcpSocket": {"port": DECLARED}}, listener.getsockname()[1]) == ProbeResult(True)


def test_a_port_that_is_not_declared_is_asked_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert answer({"tcpSocket": {"port": port}}, closed_port()) == ProbeResult(True)


async def test_a_container_without_ports_has_none_to_ask() -> None:
    asked = ProbeTarget(PLACE, ContainerSpec("main"), {})
    probe = msgspec.convert({"tcpSocket": {}}, Probe)
    assert await run_probe(ShellRuntime(), asked, probe) == ProbeResult(False, "no port to ask")


HEALTH = HealthCheckResponse.ServingStatus.Value


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (HEALTH("SERVING"), ""),
        (HEALTH("NOT_SERVING"), "gRPC status NOT_SERVING"),
        (HEALTH("UNKNOWN"), "gRPC status UNKNOWN"),
        (None, "gRPC code 12"),
    ],
)
def test_grpc_is_well_where_the_server_serves(status: Any, message: str) -> None:
    with health_server(status) as port:
        assert answer({"grpc": {}}, port, timeoutSeconds=30) == ProbeResult(not message, message)


@pytest.mark.parametrize(
    ("sends", "message"),
    [
        (b"", "connection closed before an answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "connection closed before an answer"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00" * 9, "no HTTP/2 answer"),
        (
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x04\x03\x00\x00\x00\x00\x01" + b"\x00\x00\x00\x07",
            "connection closed before an answer",
        ),
    ],
    ids=["nothing", "HTTP/1", "a frame at the wrong place", "stream refused"],
)
def test_grpc_reports_a_server_without_grpc(sends: bytes, message: str) -> None:
    with speaker(sends) as port:
        assert answer({"grpc": {}}, port, timeoutSeconds=30) == ProbeResult(False, message)


def test_grpc_waits_no_longer_than_it_may() -> None:
    with speaker(b"", keeps_open=True) as port:
        assert answer({"grpc": {}}, port) == ProbeResult(False, "no answer in 1 s")


@given(st.integers(0, 3))
def test_an_answer_of_grpc_is_read_as_it_was_written(status: Any) -> None:
    message = HealthCheckResponse(status=status).SerializeToString()
    assert serving_status(b"\x00" + len(message).to_bytes(4, "big") + message) == status


@given(st.binary(max_size=50))
@example(b"\x00\x00")
@example(b"\x08\x00\x08\x01")
@example(b"\x12\x01a\x08\x01\x1d\x00\x00\x00\x00")
def test_an_answer_of_grpc_is_healthy_only_where_its_own_library_agrees(message: bytes) -> None:
    with suppress(ProbeError):
        if serving_status(b"\x00" + len(message).to_bytes(4, "big") + message) == HEALTH("SERVING"):
            with suppress(DecodeError):
                assert HealthCheckResponse.FromString(message).status == HEALTH("SERVING")


@given(st.binary(max_size=50))
@example(b"")
@example(b"\x01\x00\x00\x00\x00")
def test_an_answer_of_grpc_that_is_not_one_whole_message_is_none(body: bytes) -> None:
    assume(body[:5] != b"\x00" + max(len(body) - 5, 0).to_bytes(4, "big"))
    with pytest.raises(ProbeError, match="no gRPC answer"):
        serving_status(body)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["true"], ""),
        (["sh", "-c", "echo password; exit 3"], "exit code 3"),
        (["sleep", "30"], "no answer in 1 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_program_is_well_where_it_ends_with_0(command: list[str], message: str) -> None:
    assert answer({"exec": {"command": command}}, 1) == ProbeResult(not message, message)


def test_a_runtime_that_cannot_probe_gives_no_verdict() -> None:
    assert answer({"exec": {"command": ["no-such-program"]}}, 1) == ProbeResult(None, "not asked: ExecFailed")


async def test_a_host_without_free_file_descriptors_gives_no_verdict() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def scenario(port: int) -> list[ProbeResult]:
        forms = [msgspec.convert(form, Probe) for form in ({"httpGet": {}}, {"tcpSocket": {}}, {"grpc": {}})]
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            return [await run_probe(ShellRuntime(), asked_of(port), form) for form in forms]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = await scenario(listener.getsockname()[1])
    assert answers == [ProbeResult(None, "too many open files")] * 3


async def test_a_daemon_that_was_delayed_gives_no_verdict() -> None:
    async def scenario(port: int) -> ProbeResult:
        asyncio.get_running_loop().call_later(0.1, time.sleep, 1.8)
        return await run_probe(ShellRuntime(), asked_of(port), msgspec.convert({"httpGet": {}}, Probe))

    with speaker(b"", keeps_open=True) as port:
        assert await scenario(port) == ProbeResult(None, "this host was too busy to ask")


async def test_no_probe_leaves_a_file_open() -> None:
    forms = [msgspec.convert(form, Probe) for form in ({"httpGet": {}}, {"tcpSocket": {}}, {"grpc": {}})]

    async def open_files() -> int:
        with health_server(HEALTH("SERVING")) as grpc, speaker(b"", keeps_open=True) as silent, serve_statuses() as web:
            ports = (grpc, silent, web.server_port, closed_port())
            await asyncio.gather(
                *(run_probe(ShellRuntime(), asked_of(port), form) for port in ports for form in forms * 3)
            )
        return len(os.listdir("/proc/self/fd"))

    before = await open_files()
    assert before - 5 < await open_files() < before + 5, "36 probes in each round"


async def test_a_prober_reports_a_server_soon_after_it_listens_and_when_it_is_gone() -> None:
    verdicts: asyncio.Queue[Verdict] = asyncio.Queue()
    probe = msgspec.convert({"httpGet": {}, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1}, Probe)
    clock = SystemClock()
    prober = Prober(ShellRuntime(), clock, verdicts.put_nowait)
    with serve_statuses() as server:
        container = ContainerSpec("main", ports=(DECLARED,), readiness=probe, liveness=probe)
        seen = ReplicaContainer("main", started=clock.monotonic())
        prober.watch(PLACE, container, {DECLARED: server.server_port}, seen)
        async with asyncio.timeout(60):
            assert await verdicts.get() == Verdict(PLACE, seen.started, ProbeKind.READINESS, True)
    async with asyncio.timeout(60):
        gone = [await verdicts.get(), await verdicts.get()]
    assert {(each.place, each.kind, each.ok) for each in gone} == {(PLACE, kind, False) for kind in ProbeKind}
    # A probe that waited to be accepted when the server closed gets another error than a later one.
    assert {each.message for each in gone} <= {"connection refused", "connection reset by peer"}
    await prober.close()


LISTEN = """import socket, sys
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*sorted(listener.getsockname()[1] for listener in listeners), flush=True)
sys.stdin.read()
"""


async def explain(program: subprocess.Popen[str], form: dict[str, Any], *ports: int) -> str:
    """What is said of a refused probe in ``form`` of a container with ``ports`` whose program is ``program``."""
    runtime, probe = ShellRuntime(program.pid), msgspec.convert(form, Probe)
    return await explain_failure(runtime, asked_of(*ports), probe, "connection refused")


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_failure_names_the_ports_on_which_the_program_listens(count: int) -> None:
    command, refused = [sys.executable, "-c", LISTEN, str(count)], closed_port()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        ports = program.stdout.readline().split()
        messages = [
            await explain(program, form, refused) for form in ({"httpGet": {}}, {"tcpSocket": {}}, {"grpc": {}})
        ]
        second = await explain(program, {"tcpSocket": {"port": DECLARED + 1}}, 1, refused)
        at_these = {await explain(program, {"httpGet": {}}, int(port)) for port in ports}
        program.stdin.close()
    there = ", ".join(ports) or "no port"
    assert messages == [f"nothing listens on {refused} (PORT); the program listens on {there}"] * 3
    assert second == f"nothing listens on {refused} (PORT_8081); the program listens on {there}"
    assert at_these <= {"connection refused"}, "it listens there by now"


@only_root("only root can give a program a network of its own")
async def test_in_a_network_of_its_own_the_program_listens_on_the_declared_port() -> None:
    command = ["unshare", "--net", sys.executable, "-c", LISTEN, "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        port = program.stdout.readline().strip()
        message = await explain(program, {"tcpSocket": {}}, closed_port())
        program.stdin.close()
    assert message == f"nothing listens on {DECLARED} (PORT); the program listens on {port}"


async def test_a_failure_of_what_cannot_be_seen_stays_as_it_is() -> None:
    hidden = ShellRuntime(os.getpid(), 2**22)
    refused = msgspec.convert({"tcpSocket": {}}, Probe)
    assert await explain_failure(hidden, asked_of(closed_port()), refused, "connection refused") == "connection refused"
    for form, message in (({"tcpSocket": {}}, "connection refused"), ({"httpGet": {}}, "HTTP 500")):
        probe = msgspec.convert(form, Probe)
        assert await explain_failure(ShellRuntime(), asked_of(closed_port()), probe, message) == message
