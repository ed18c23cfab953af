"""HTTP/2 and gRPC through host names of a real HAProxy, with TLS and without, by clients that others wrote."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import grpc
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.routing.build import ServedWorkload
from reconciler.model.key import Key
from reconciler.model.kinds.domain import read_domain
from tests.engines.host.dataplane.haproxy.kit import KEY, Plane, play
from tests.engines.host.dataplane.haproxy.test_secure_routes import IngressHarness
from tests.engines.host.dataplane.kit import PATIENCE, PORT, until
from tests.engines.host.dataplane.load.program import Program
from tests.engines.host.dataplane.load.traffic import H2, Tally
from tests.engines.host.probes.servers import Status, health_server
from tests.support.certificates import authority, issue

RPC = Key(KEY.kind, "shop", "rpc")
NAME = "shop.example"
SERVING = health_pb2.HealthCheckResponse.SERVING
ROUTES = [
    {"prefix": "/", "workloadLink": "/org/acme/gvc/shop/workload/web"},
    {"prefix": "/grpc.health.v1.Health/", "workloadLink": "/org/acme/gvc/shop/workload/rpc"},
]
SECURE = pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])


class Http2Harness(IngressHarness):
    """A host name that leads to two workloads by path: one of HTTP/2, and one of gRPC."""

    def __init__(self, path: Path, *, secure: bool) -> None:
        super().__init__(path)
        ports = {"web": "http2", "rpc": "grpc"}
        self.served = tuple(ServedWorkload(key, {PORT: ports[key.name]}, ("0.0.0.0/0",)) for key in (KEY, RPC))
        self.address = f"127.0.0.1:{self.https if secure else self.http}"
        self.context = ssl.create_default_context(cadata=authority().chain_pem.decode()) if secure else None
        if self.context is not None:
            self.context.set_alpn_protocols(["h2"])
            self.write("shop.pem", issue(NAME))

    async def start(self, web: int, rpc: int) -> None:
        """Serve the replicas at these ports."""
        for key, port, protocol in ((KEY, web, "http2"), (RPC, rpc, "grpc")):
            address = f"127.0.0.1:{port}"
            self.plane.dataplane.update(key, (Endpoint("a", address, {str(PORT): address}, 1),))
            self.plane.dataplane.publish(Service(key, PORT, protocol))
        await until(lambda: all(map(self.plane.dataplane.address, (KEY, RPC))))
        number = 443 if self.context is not None else 80
        spec = {"ports": [{"number": number, "routes": ROUTES}]}
        await self.serve(read_domain(msgspec.json.encode({"kind": "domain", "name": NAME, "spec": spec})))

    def channel(self) -> grpc.Channel:
        """A channel of the gRPC library to the host name."""
        if self.context is None:
            return grpc.insecure_channel(self.address, [("grpc.default_authority", NAME)])
        credentials = grpc.ssl_channel_credentials(authority().chain_pem)
        return grpc.secure_channel(self.address, credentials, [("grpc.ssl_target_name_override", NAME)])


@SECURE
def test_a_client_of_grpc_reaches_its_workload_by_host_name_and_path(path: Path, secure: bool) -> None:
    harness = Http2Harness(path, secure=secure)

    def call() -> None:
        with harness.channel() as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest()
            assert stub.Check(request, timeout=PATIENCE).status == SERVING
            # The first message of a stream comes while the stream goes on.
            stream = stub.Watch(request, timeout=PATIENCE)
            assert next(stream).status == SERVING
            stream.cancel()
            with pytest.raises(grpc.RpcError) as error:
                stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=PATIENCE)
            assert error.value.code() is grpc.StatusCode.NOT_FOUND

    async def story(_: Plane) -> None:
        with health_server(Status.SERVING) as port:
            await harness.start(await Program("web").start(), port)
            await asyncio.to_thread(call)

    play(lambda: harness.plane, story)


@SECURE
def test_requests_of_one_connection_of_http_2_are_answered_at_once(path: Path, secure: bool) -> None:
    harness, tally = Http2Harness(path, secure=secure), Tally("HTTP/2")

    async def story(_: Plane) -> None:
        web = Program("web")
        await harness.start(await web.start(), await Program("rpc").start())
        client = H2(harness.address, host=NAME, context=harness.context)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(client.ask(tally) for _ in range(20)))
        client.close()
        assert (tally.answered, tally.lost, web.answered) == (20, [], 20)
        if not secure:
            unknown = H2(harness.address, host="other.example")
            await unknown.ask(tally)
            assert ["404" in each for each in tally.lost] == [True]
            unknown.close()

    play(lambda: harness.plane, story)
