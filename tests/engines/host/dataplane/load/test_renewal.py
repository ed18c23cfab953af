"""Clients of an ingress with TLS lose no request while its certificate is replaced again and again."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.protocol import Service
from tests.engines.host.dataplane.haproxy.kit import KEY, Plane, play
from tests.engines.host.dataplane.haproxy.test_secure_routes import IngressHarness, der, domain
from tests.engines.host.dataplane.kit import PORT, until
from tests.engines.host.dataplane.load.test_changes import EndingReplicas, lost
from tests.engines.host.dataplane.load.traffic import H1, H2, Socket, under_load
from tests.support.certificates import authority, issue

RATE = float(os.environ.get("LOAD_RATE", "500"))
RENEWALS = 100
NAME = "shop.example"

pytestmark = pytest.mark.slow


def context(*protocols: str) -> ssl.SSLContext:
    """Trusts the authority of the tests, and offers ``protocols``."""
    found = ssl.create_default_context(cadata=authority().chain_pem.decode())
    found.set_alpn_protocols(list(protocols))
    return found


def test_renewals_lose_no_request(path: Path) -> None:
    harness = IngressHarness(path)
    one, two = context("http/1.1"), context("h2")
    forms = {
        "HTTP/1.1, keep-alive": lambda address: H1(address, keep=True, host=NAME, context=one),
        "HTTP/1.1, a connection each": lambda address: H1(address, keep=False, host=NAME, context=one),
        "HTTP/2": lambda address: H2(address, host=NAME, context=two),
        "WebSocket": lambda address: Socket(address, NAME, one),
    }

    async def story(plane: Plane) -> None:
        await EndingReplicas(plane, KEY).add(2)
        harness.write("shop.pem", issue(NAME))
        await plane.serve(Service(KEY, PORT))
        await harness.serve(domain(NAME))
        await until(lambda: NAME in harness.store.served.certificates)
        async with asyncio.timeout(60):
            while (await harness.get(NAME)).status != 200:
                await asyncio.sleep(0.02)
        worker = plane.worker

        async def renew() -> None:
            for number in range(RENEWALS):
                new = issue(NAME, end=91.0 + number)
                harness.write("shop.pem", new)
                harness.store.refresh_soon()
                plane.dataplane.reroute()
                async with asyncio.timeout(60):
                    while (await harness.get(NAME)).shown != der(new):
                        await asyncio.sleep(0.1)

        addresses = dict.fromkeys(forms, f"127.0.0.1:{harness.https}")
        tallies = await under_load(addresses, RATE, renew, forms=forms)
        print(*tallies, sep="\n")
        assert lost(tallies) == {}
        assert min(each.answered for each in tallies) > 0
        assert plane.worker == worker

    play(lambda: harness.plane, story)
