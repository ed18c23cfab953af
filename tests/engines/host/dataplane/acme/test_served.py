"""From a manifest to a certificate that is served: the host engine, HAProxy, an authority, and a DNS server."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from reconciler.drift.observations import ObservationRecorder
from reconciler.engines.domain_status import read_domain_state
from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.host.dataplane.choice import DATAPLANE
from reconciler.engines.host.dataplane.haproxy.program import find_program
from reconciler.engines.protocol import EngineEvent, Observation
from reconciler.model.key import Key, Kind
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action
from reconciler.reasons import ConditionType, Reason
from reconciler.settings import IngressSettings
from reconciler.status.conditions import ResourceFacts, compute_conditions
from tests.engines.host.dataplane.acme.kit import LIFE, Authority, run_authority
from tests.engines.host.dataplane.haproxy.kit import WebReplica, end
from tests.engines.host.dataplane.kit import PORT
from tests.engines.host.fake import FakeRuntime
from tests.engines.host.kit import WEB, HostHarness, play_on
from tests.engines.host.test_from_zero import ReplicaServers
from tests.support.plans import ends, plan, step
from tests.support.processes import free_ports
from tests.support.programs import skip_unless

pytestmark = skip_unless(
    find_program() is not None and shutil.which("pebble") is not None, "HAProxy or Pebble is not installed"
)

DOMAIN = Key(Kind.DOMAIN, "", "shop.example")
DAY = 86_400.0


class ShownCertificate(NamedTuple):
    """An answer over TLS: its status and body, and the certificate that the handshake showed."""

    status: int
    body: str
    certificate: bytes


NONE = ShownCertificate(0, "", b"")


class AcmeHarness(HostHarness):
    """A location with an ingress, whose certificates come from ``authority``."""

    def __init__(self, path: Path, authority: Authority) -> None:
        self.https = free_ports(1)[0]
        ingress = IngressSettings(("127.0.0.1",), authority.http_port, self.https, acme=authority.settings)
        self.authorities = authority.root()
        super().__init__(path, FakeRuntime, "haproxy", ingress, authority.resolver)
        self.time.jump(time.time() - self.time.now())
        self.events: list[EngineEvent] = []
        self.seen: list[Observation] = []
        self.recorder = ObservationRecorder(self.records, self._settings)

    async def apply_manifests(self) -> None:
        """Apply a GVC, a domain with a route, and a workload."""
        route = {"workloadLink": "/org/acme/gvc/shop/workload/web", "prefix": "/"}
        self._put(Key(Kind.GVC, "", "shop"), {})
        self._put(DOMAIN, {"ports": [{"number": 443, "routes": [route]}]})
        spec = {
            "type": "standard",
            "containers": [{"name": "main", "image": "plain", "ports": [{"number": PORT, "protocol": "http"}]}],
            "firewallConfig": {"external": {"inboundAllowCIDR": ["0.0.0.0/0"]}},
            "defaultOptions": {"autoscaling": {"metric": "disabled", "minScale": 1, "maxScale": 1}},
        }
        body = {"kind": "workload", "name": "web", "spec": spec}
        wanted = step(WEB, action=Action.CREATE, body=body, engine="host")
        assert set(ends(await self.run(plan(wanted))).values()) == {"applied"}
        self.engine.refresh()

    def _put(self, key: Key, spec: dict[str, Any]) -> None:
        body = msgspec.json.encode({"kind": str(key.kind), "name": key.name, "spec": spec})
        self.records.applied.put(Record(key, "", "shop", "d", body, 1, "recorded", Health.HEALTHY))

    async def observed(self) -> dict[str, str]:
        """The conditions of the domain besides Ready, once what is observed now is recorded."""
        self.seen = await self.engine.observe()
        self.events += self.engine.news()
        self.recorder.record({"here": []}, {"here": self.engine}, {})
        found = compute_conditions(ResourceFacts(DOMAIN, "shop", "d", records=(self._domain(),)))
        return {each.type: each.message for each in found if each.type != "Ready"}

    def endpoints(self) -> dict[str, str]:
        """The addresses of the domain as recorded, with the end of their certificates."""
        reports = read_domain_state(self._domain().state).locations
        return {each.url: each.certificate_expires for report in reports for each in report.endpoints}

    def not_enforced(self) -> str:
        """What of the workload is not enforced, as it is observed now."""
        [seen] = [each for each in self.seen if each.key.kind is Kind.WORKLOAD]
        found = engine_conditions(seen.state)
        return " ".join(each.message for each in found if each.type is ConditionType.NOT_ENFORCED)

    def _domain(self) -> Record:
        [record] = self.records.applied.get(DOMAIN)
        return record

    async def until(self, condition: str, present: bool = True) -> str:
        """Let time pass until the domain has ``condition``, or has it no more; its message."""
        for _ in range(600):
            conditions = await self.observed()
            if (condition in conditions) == present:
                return conditions.get(condition, "")
            await self.time.advance(1.0)
            await asyncio.sleep(0.05)
        raise AssertionError(f"{condition} {present} never came: {conditions}")

    async def get(self) -> ShownCertificate:
        """The answer to a request to the domain, whose certificate the authority has signed; status 0 without one."""
        context = ssl.create_default_context(cadata=self.authorities)
        where: dict[str, Any] = {"ssl": context, "server_hostname": DOMAIN.name}
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.https, **where)
        except OSError:
            return NONE
        writer.write(f"GET / HTTP/1.1\r\nHost: {DOMAIN.name}\r\nConnection: close\r\n\r\n".encode())
        text = (await reader.read()).decode()
        shown = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.close()
        return ShownCertificate(int(text.split()[1]), text.rpartition("\r\n")[2], shown)

    async def another(self, former: ShownCertificate) -> ShownCertificate:
        """Let time pass until another certificate than the one of ``former`` is served; the first answer with it."""
        for _ in range(600):
            found = await self.get()
            if found.certificate != former.certificate:
                return found
            await self.observed()
            await self.time.advance(1.0)
            await asyncio.sleep(0.05)
        raise AssertionError("no other certificate came")


@pytest.fixture(name="path")
def location(tmp_path: Path) -> Iterator[Path]:
    """The state directory; its HAProxy ends after the test."""
    yield tmp_path
    end(tmp_path / "here" / DATAPLANE)


def test_a_domain_gets_its_certificate_and_a_new_one_and_keeps_it_when_the_authority_fails(
    path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def story(harness: AcmeHarness) -> None:
        await harness.apply_manifests()
        await ReplicaServers(harness, WebReplica).pass_until(1)
        [replica] = [replica.name for replica in harness.replicas()]
        unverified = await harness.until("NotVerified")
        assert unverified.startswith("at here: the TXT record _reconciler-challenge.shop.example with the value")
        assert harness.endpoints() == {"http://shop.example": ""}
        assert "_reconciler-challenge.platform.local with the value org=acme" in harness.not_enforced()

        authority.prove("shop.example")
        await harness.until("NotVerified", present=False)
        await harness.until("CertificateMissing", present=False)
        first = await harness.another(NONE)
        assert (first.status, first.body) == (200, replica)
        assert list(harness.endpoints()) == ["https://shop.example"]
        assert await harness.observed() == {}

        # Renewal begins before two thirds of its life are over.
        harness.time.jump(LIFE * 0.6)
        await harness.time.advance(120.0)
        assert (await harness.get()).certificate == first.certificate
        harness.time.jump(LIFE * 0.07)
        second = await harness.another(first)
        assert second.status == 200

        authority.stop()
        harness.time.jump(3 * DAY)
        message = await harness.until("CertificateExpiring")
        assert "could not be renewed: the authority cannot be reached" in message
        assert await harness.get() == second
        reported = [event.reason for event in harness.events if event.key == DOMAIN]
        assert [reason for reason in reported if reason is not Reason.ROUTE_NOT_SERVED] == [
            Reason.CERTIFICATE_ISSUED,
            Reason.CERTIFICATE_ISSUED,
            Reason.CERTIFICATE_FAILED,
        ]

    with run_authority(tmp_path_factory.mktemp("pebble")) as authority:
        play_on(lambda: AcmeHarness(path, authority), story)
