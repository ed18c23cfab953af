"""Tokens of workloads on a cluster: their pods use them, others do not, and a silent cluster delays nobody else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from reconciler.api.app import make_app
from reconciler.engines.kubernetes.reading import location
from reconciler.model.key import Key, Kind
from tests.engines.kubernetes.reading_kit import pod_of, running
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.support.api import ORG, ApiClient, ApiSandbox, api_sandbox

PROXY, OWN, OTHER = "10.9.9.9", "10.1.0.7", "10.1.0.8"
"""A proxy, a pod of the workload with the token, and one of another workload."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeApiServer]:
    """A cluster without controllers: its pods are those of the tests."""
    with fake_api_server(tmp_path_factory.mktemp("cluster")) as server:
        yield server


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, server: FakeApiServer) -> Iterator[ApiSandbox]:
    """The shop at one location on the cluster, with an API behind a proxy."""
    here = {"engine": "kubernetes", "cluster": {"kubeconfig": str(server.kubeconfig)}}
    with api_sandbox(
        tmp_path_factory.mktemp("api"),
        locations={"here": here, "there": {"engine": "recorded"}},
        images={"registry": "registry.example.com"},
        api={"trustedProxies": [PROXY]},
    ) as sandbox:
        for workload, address in (("api", OWN), ("web", OTHER)):
            server.create(pod_of(Key(Kind.WORKLOAD, "shop", workload), workload))
            server.patch("Pod", workload, "shop", {"status": running(podIP=address)}, subresource="status")
        yield sandbox


def read_token(server: FakeApiServer, workload: str) -> str:
    """The token of a workload of the shop."""
    return base64.b64decode(server.object("Secret", f"{workload}-token", "shop")["data"]["token"]).decode()


def ask(sandbox: ApiSandbox, token: str, address: str, origin: str = "") -> int:
    """The status of a request with ``token`` from ``address``, for ``origin`` if a proxy sends it."""
    headers = {"Authorization": token, **({"X-Forwarded-For": origin} if origin else {})}
    return asyncio.run(send_request(sandbox.client(None, address), **headers))


async def send_request(client: ApiClient, **headers: str) -> int:
    """The status of a request over TCP, where the address of the server has a port."""
    async with httpx2.AsyncClient(transport=client.transport, base_url="http://api:8080") as sender:
        return (await sender.get(ORG, headers=headers)).status_code


def test_a_token_is_good_for_the_pods_of_its_workload(sandbox: ApiSandbox, server: FakeApiServer) -> None:
    token = read_token(server, "api")
    assert ask(sandbox, token, OWN) == 200
    assert ask(sandbox, token, OTHER) == 403
    assert ask(sandbox, token, "10.255.0.1") == 403, "a node, whose address its pods may have outside, has many of them"
    assert ask(sandbox, token[:-1], OWN) == 401


def test_a_trusted_proxy_passes_the_address_of_a_pod_on(sandbox: ApiSandbox, server: FakeApiServer) -> None:
    token = read_token(server, "api")
    assert ask(sandbox, token, PROXY, OWN) == 200
    assert ask(sandbox, token, PROXY, OTHER) == 403
    assert ask(sandbox, token, PROXY) == 403
    assert ask(sandbox, token, OTHER, OWN) == 403, "any client can write the header"


def test_a_proxy_sends_requests_of_several_pods_over_one_connection(sandbox: ApiSandbox, server: FakeApiServer) -> None:
    token = read_token(server, "api")
    client, answer = sandbox.client(None, PROXY), make_app(sandbox.api)
    senders: dict[object, bool] = {}

    async def answer_connection(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {"senders": senders}
        await answer(scope, receive, send)

    client.transport = httpx2.ASGITransport(app=answer_connection, client=(PROXY, 123))
    answers = [
        asyncio.run(send_request(client, **{"Authorization": token, "X-Forwarded-For": origin}))
        for origin in (OWN, OTHER, OWN)
    ]
    assert answers == [200, 403, 200]


def test_a_cluster_that_is_silent_delays_no_other_request(
    sandbox: ApiSandbox, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "_CHECK_SECONDS", 6.0)
    token = read_token(server, "api")
    server.stall("get secrets", -1)
    order = asyncio.run(list_answers(sandbox, token, OWN))
    server.heal()
    assert order == [200] * 20 + [503]
    assert ask(sandbox, token, OWN) == 200


async def list_answers(sandbox: ApiSandbox, token: str, address: str) -> list[int]:
    """The statuses of one request with ``token`` and of twenty others that begin after it, in the order of answers."""
    order: list[int] = []

    async def send(client: ApiClient, **headers: str) -> None:
        order.append(await send_request(client, **headers))

    async with asyncio.TaskGroup() as group:
        group.create_task(send(sandbox.client(None, address), Authorization=token))
        await asyncio.sleep(0.05)
        for _ in range(20):
            await send(sandbox.client())
    return order
