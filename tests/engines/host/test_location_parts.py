"""The hooks of the parts of a location: each is called, in the order of the list, by the location or by a signal."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.probes.state import ProbeKind, Verdict
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.signals import MAX_EVENTS, LocationSignals
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason
from tests.engines.host.kit import HostHarness
from tests.engines.host.test_event_texts import scaled_by_cpu

KEY = Key(Kind.WORKLOAD, "shop", "web")
OTHER = Key(Kind.WORKLOAD, "shop", "api")
HOOKS = [name for name, _ in inspect.getmembers(LocationPart, inspect.isfunction) if not name.startswith("_")]


def part_that_notes(name: str, calls: list[tuple[str, str]]) -> LocationPart:
    """A part whose hooks do what they do by default, and append ``(name, hook)`` to ``calls``."""

    def noting(hook: str) -> Callable[..., Any]:
        def call(self: LocationPart, *arguments: Any) -> Any:
            calls.append((name, hook))
            return getattr(LocationPart, hook)(self, *arguments)

        return call

    return type(f"Noting{name}", (LocationPart,), {hook: noting(hook) for hook in HOOKS})()


def test_each_hook_of_each_part_is_called_in_the_order_of_the_parts(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []
    parts = part_that_notes("a", calls), part_that_notes("b", calls)
    template = scaled_by_cpu()
    place = ContainerId(KEY, "web-1", "main")

    async def story() -> None:
        host = HostHarness(tmp_path)
        location = host.engine.location
        location.parts, location.signals = parts, LocationSignals()
        location.signals.connect(parts)
        await location.open([])
        location.begin_work()
        location.signals.begin_schedules()
        location.signals.begin_schedules()
        location.refresh()
        location.read_manifest(KEY, b"{}", "")
        location.want(template)
        assert list(location.limitations(template)) == list(location.runtime.limitations(template.desired))
        assert location.error(KEY) == ""
        location.end(KEY)
        location.forget(KEY)
        location.retain([])
        signals = location.signals
        signals.wake(KEY)
        signals.want_again(template)
        signals.reload(KEY)
        signals.retry_starts()
        assert not signals.stop("workload/shop/web replica web-1")
        signals.image_missing(KEY)
        signals.report_probe(Verdict(place, 0.0, ProbeKind.READINESS, ok=True))
        signals.clock_set()
        signals.serving_changed()
        await location.close()

    asyncio.run(story())
    assert calls == [(part, hook) for _, hook in calls[::2] for part in "ab"]
    assert sorted({hook for _, hook in calls}) == HOOKS
    assert calls.count(("a", "begin_schedules")) == 1


def test_a_part_takes_what_the_one_before_it_returns(tmp_path: Path) -> None:
    seen: list[int] = []

    class AddingPart(LocationPart):
        def want(self, _template: ReplicaTemplate, wanted: WorkloadSpec) -> WorkloadSpec:
            seen.append(wanted.replicas)
            return msgspec.structs.replace(wanted, replicas=wanted.replicas + 1)

    async def story() -> None:
        location = HostHarness(tmp_path).engine.location
        location.parts = (AddingPart(), AddingPart(), AddingPart())
        location.want(scaled_by_cpu())

    asyncio.run(story())
    assert seen == [seen[0], seen[0] + 1, seen[0] + 2]


def test_a_signal_has_no_effect_before_there_are_parts() -> None:
    signals = LocationSignals()
    signals.wake(KEY)
    assert not signals.stop("nobody")


def test_events_wait_for_the_daemon_and_the_oldest_of_too_many_are_dropped() -> None:
    async def story() -> None:
        signals = LocationSignals()
        changes = signals.changes()
        for number in range(MAX_EVENTS + 1):
            signals.report(KEY, Reason.SCALED, str(number))
        async with asyncio.timeout(60):
            await anext(changes)
        events = signals.take_events()
        assert [event.message for event in (events[0], events[-1])] == ["1", str(MAX_EVENTS)]
        assert signals.take_events() == []

    asyncio.run(story())


def test_changes_name_what_has_changed_and_nothing_where_anything_has() -> None:
    async def story() -> list[frozenset[Key]]:
        signals, changed = LocationSignals(), list[frozenset[Key]]()
        changes = signals.changes()
        signals.report_change(KEY)
        signals.report_change(OTHER)
        changed.append(await anext(changes))
        signals.report_change(KEY)
        signals.report(Key(Kind.DOMAIN, "", "example.com"), Reason.ROUTE_NOT_SERVED, "twice")
        changed.append(await anext(changes))
        signals.report(KEY, Reason.SCALED, "more")
        changed.append(await anext(changes))
        return changed

    assert asyncio.run(story()) == [{KEY, OTHER}, frozenset(), {KEY}]
