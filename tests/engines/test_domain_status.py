"""The reports of locations about a domain become its conditions, and outlive what knows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from reconciler.drift.observations import ObservationRecorder
from reconciler.engines.domain_status import DomainCondition, DomainEndpoint, DomainReport, read_domain_state
from reconciler.engines.host.dataplane.domains import report_without_ingress
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.model.key import Key
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.render.resources import resource_document, resource_sections
from reconciler.render.style import TextStyle
from reconciler.settings import LocationSettings, Settings
from reconciler.status.conditions import ResourceFacts, compute_conditions
from tests.status.samples import record
from tests.support.clock import FakeClock
from tests.support.plans import step

KEY = Key.parse("domain/shop.example")
MISSING = DomainCondition(ConditionType.CERTIFICATE_MISSING, Reason.CERTIFICATE_MISSING, "no certificate")
SETTINGS = Settings("acme", (), Path("/nowhere"), locations=dict.fromkeys(("here", "there"), LocationSettings("host")))

Reports = dict[Key, DomainReport] | None


class Reporting(RecordedEngine):
    """An engine that reports about domains."""

    reports: Reports = None

    def domains(self) -> Reports:
        """As SupportsDomains.domains."""
        return self.reports


class DomainHarness:
    """Records with a domain, and two locations."""

    def __init__(self) -> None:
        self.records = Records.open(None)
        self.records.applied.put(record(KEY))
        self.engines = {
            name: Reporting(self.records, name, "acme", "platform.test", FakeClock()) for name in SETTINGS.locations
        }
        self.recorder = ObservationRecorder(self.records, SETTINGS)

    def report(self, reports: Mapping[str, Reports]) -> Record:
        """The record once the locations have reported; others do not answer."""
        for name, each in reports.items():
            self.engines[name].reports = each
        self.recorder.record({name: [] for name in reports}, {name: self.engines[name] for name in reports}, {})
        return self.now

    @property
    def now(self) -> Record:
        [found] = self.records.applied.get(KEY)
        return found


def served(location: str, *found: DomainCondition) -> dict[Key, DomainReport]:
    endpoint = DomainEndpoint("https://shop.example", "2026-03-31T00:00:00Z")
    return {KEY: DomainReport(location, (endpoint,), found)}


@pytest.fixture(name="harness")
def new_harness() -> DomainHarness:
    return DomainHarness()


def test_reports_become_conditions_with_their_locations(harness: DomainHarness) -> None:
    found = harness.report({"here": served("here", MISSING), "there": served("there", MISSING)})
    shown = {each.type: each.message for each in compute_conditions(ResourceFacts(KEY, "main", "d1", records=(found,)))}
    assert shown == {
        "Ready": "not healthy: no certificate",
        "CertificateMissing": "at here, there: no certificate",
    }
    assert harness.records.status_queue.take("main").keys == [str(KEY)]


@pytest.mark.parametrize("type_", ConditionType)
def test_a_domain_is_as_healthy_as_its_conditions(harness: DomainHarness, type_: ConditionType) -> None:
    """Of every type: one that degrades it makes it Unhealthy, with an event, as long as it is true."""
    report = served("here", DomainCondition(type_, Reason.ROUTE_NOT_SERVED, "half of it"))
    assert harness.report({"here": report}).health is (Health.UNHEALTHY if type_.degrades else Health.HEALTHY)
    assert harness.report({"here": served("here")}).health is Health.HEALTHY
    events = [(event.reason, event.message) for event in harness.records.events.list(str(KEY))]
    expected = [(Reason.UNHEALTHY, "not healthy: half of it"), (Reason.HEALTHY, "healthy")]
    if type_ is ConditionType.CERTIFICATE_EXPIRING:
        expected = [(Reason.CERTIFICATE_EXPIRING, "half of it"), (Reason.CERTIFICATE_RENEWED, "no longer: half of it")]
    elif type_ is ConditionType.VOLUME_NEARLY_FULL:
        expected = [(Reason.VOLUME_NEARLY_FULL, "half of it"), (Reason.VOLUME_HAS_ROOM, "no longer: half of it")]
    elif not type_.degrades:
        expected = []
    assert events == expected


def test_another_end_of_an_expiring_certificate_is_no_event(harness: DomainHarness) -> None:
    kind = ConditionType.CERTIFICATE_EXPIRING
    for message in ("it expires at 3", "it expires at 3, and could not be renewed"):
        harness.report({"here": served("here", DomainCondition(kind, Reason.CERTIFICATE_EXPIRING, message))})
    harness.report({"here": served("here")})
    events = [(event.reason, event.message) for event in harness.records.events.list(str(KEY))]
    assert events == [
        (Reason.CERTIFICATE_EXPIRING, "it expires at 3"),
        (Reason.CERTIFICATE_RENEWED, "no longer: it expires at 3, and could not be renewed"),
    ]


def test_an_equal_report_writes_nothing(harness: DomainHarness) -> None:
    harness.report({"here": served("here", MISSING)})
    taken = harness.records.status_queue.take("main")
    harness.records.status_queue.clear("main", taken.keys, taken.upto)
    harness.report({"here": served("here", MISSING)})
    assert harness.records.status_queue.take("main").keys == []


def test_a_location_that_knows_nothing_changes_nothing(harness: DomainHarness) -> None:
    whole = harness.report({"here": served("here", MISSING), "there": served("there")}).state
    assert harness.report({"here": None, "there": served("there")}).state == whole
    assert harness.report({"there": served("there")}).state == whole
    # Another daemon knows nothing of the reports before it.
    harness.recorder = ObservationRecorder(harness.records, SETTINGS)
    assert harness.report({"here": None}).state == whole


def test_a_domain_that_a_location_no_longer_serves_is_reported_no_more(harness: DomainHarness) -> None:
    harness.report({"here": served("here", MISSING), "there": served("there")})
    assert [each.location for each in read_domain_state(harness.report({"here": {}}).state).locations] == ["there"]
    harness.recorder = ObservationRecorder(harness.records, msgspec.structs.replace(SETTINGS, locations={}))
    harness.recorder.record({}, {}, {})
    assert harness.now.state == b"{}"


def test_locations_without_an_ingress_count_only_where_none_has_one(harness: DomainHarness) -> None:
    nowhere = {name: {KEY: report_without_ingress(name)} for name in ("here", "there")}
    reported = harness.report(nowhere)
    shown = {
        compute_condition.type: compute_condition.message
        for compute_condition in compute_conditions(ResourceFacts(KEY, "main", "d1", records=(reported,)))
    }
    assert shown.keys() == {"Ready", "NotServed"}
    assert shown["NotServed"].startswith("at here, there: no location with its workloads has an ingress")
    reported = harness.report({"here": nowhere["here"], "there": served("there", MISSING)})
    assert [location.location for location in read_domain_state(reported.state).locations] == ["there"]


async def test_a_change_in_git_keeps_the_reports(harness: DomainHarness) -> None:
    state = harness.report({"here": served("here", MISSING)}).state
    engine = RecordedEngine(harness.records, "", "acme", "platform.test", FakeClock())
    done = await engine.perform(step(str(KEY), "", action=Action.UPDATE, version=4))
    assert done.seen is not None
    assert done.seen.state == state


def test_describe_and_json_show_the_endpoints(harness: DomainHarness) -> None:
    facts = ResourceFacts(KEY, "main", "d1", records=(harness.report({"here": served("here", MISSING)}),))
    sections = dict(resource_sections(facts, (), (), TextStyle()))
    assert sections["Endpoints"].split("  ")[1:] == [
        "https://shop.example",
        "here",
        "the certificate expires at 2026-03-31T00:00:00Z",
    ]
    item = msgspec.json.decode(msgspec.json.encode(resource_document(facts)))
    assert item["locations"] == [
        {
            "location": "here",
            "endpoints": [{"url": "https://shop.example", "certificateExpires": "2026-03-31T00:00:00Z"}],
        }
    ]
