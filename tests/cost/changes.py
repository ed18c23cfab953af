"""Changes that should cost the same whatever else there is, each among ``count`` other resources.

The tests count the work of a change, and ``make bench`` measures its CPU seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.daemon.loop import Daemon
from reconciler.daemon.systemd import SystemdNotifier
from reconciler.daemon.wake import DRIFT
from reconciler.engines.registry import engine_makers
from reconciler.model.key import Key
from reconciler.model.record import Health
from reconciler.settings import LocationSettings, SecretSettings
from tests.cost.sandbox import CostHarness
from tests.cost.shop import FAR, NEAR, Files, gvc, identity, location, policy, reached_by_others, secret, shop, workload
from tests.support.engines import LedgerEngine
from tests.support.rule_cases import private


class MeasuredChange(NamedTuple):
    """A harness, how to make the change number 1, 2, 3, … to it, and how the daemon follows the change."""

    harness: CostHarness
    change: Callable[[int], object]
    follow: Callable[[], object]


Change = Callable[[int], Files]
"""The files of the commit number 1, 2, 3, …"""


def _committed(files: Callable[[int], Files], change: Change, path: Path, count: int, durable: bool) -> MeasuredChange:
    """A change that is a commit to a source of ``files``."""
    harness = CostHarness(path, {"main": files(count)}, durable=durable)
    return MeasuredChange(harness, lambda number: harness.commit(change(number)), harness.poll)


def _in_folders(count: int) -> Files:
    files = {path: text for path, text in shop(count).items() if "kind: workload" not in text}
    return files | {f"shop/{number % (count // 10)}/{number}.yaml": workload(number) for number in range(count)}


def _roots(count: int) -> Files:
    return shop(5) | {f"{number}/gvc.yaml": gvc(f"gvc-{number}") for number in range(count)}


def _at_queried_location(count: int) -> Files:
    """A shop whose GVC selects its location by a query."""
    query = "{locationQuery: {kind: location, spec: {terms: [{op: '=', property: provider, value: aws}]}}}"
    placed = gvc().replace(f"{{locationLinks: [//location/{NEAR}]}}", query)
    return shop(count) | {"shop/gvc.yaml": placed, "location.yaml": location()}


def _location_described(number: int) -> Files:
    return {"location.yaml": location(number + 1)}


def _one_workload(number: int) -> Files:
    return {"shop/3.yaml": workload(3, image=number + 1)}


def _missing_links(path: Path, count: int, durable: bool) -> MeasuredChange:
    """Names that are searched for among all others, in narrow folders: the width of a folder is a change of its own."""
    harness = CostHarness(path, {"main": _in_folders(count)}, durable=durable)

    def change(number: int) -> None:
        text = (
            workload(3, image=number).replace("identity/service", "identity/servce").replace("secret/db.", "secret/bd.")
        )
        harness.commit({"shop/3/3.yaml": text})

    return MeasuredChange(harness, change, partial(harness.poll, "refused"))


def _hosted(path: Path, count: int) -> Files:
    """Secrets whose values are files of this host, in ``path``."""
    path.mkdir(parents=True)
    for number in range(count):
        private(path / str(number), "not-a-real-password")
    return {f"secrets/{number}.yaml": secret(f"s{number}", f"{{file: '{number}'}}") for number in range(count)}


def _beside_hosted_secrets(path: Path, count: int, durable: bool) -> MeasuredChange:
    files = shop(5) | _hosted(path / "secrets", count)
    harness = CostHarness(path, {"main": files}, durable=durable, secrets=SecretSettings(directory=path / "secrets"))
    return MeasuredChange(harness, lambda number: harness.commit(_one_workload(number)), harness.poll)


def _beside_other_sources(path: Path, count: int, durable: bool) -> MeasuredChange:
    sources = {f"s{number}": shop(count // 20, name=f"shop-{number}") for number in range(20)}
    for name in sources.keys() - {"s0"}:
        del sources[name]["db.yaml"]  # one source has it for all
    harness = CostHarness(path, sources, durable=durable)
    return MeasuredChange(
        harness, lambda number: harness.commit({"shop-0/gvc.yaml": gvc("shop-0", variable=number + 1)}), harness.poll
    )


def _health_change(path: Path, count: int, durable: bool) -> MeasuredChange:
    """An engine notices that one of five workloads has another health; all others are elsewhere."""
    files = shop(5) | shop(count, name="far", location=FAR) | _hosted(path / "secrets", count)
    engine = LedgerEngine(path / "ledger", NEAR)
    settings: dict[str, Any] = {
        "locations": {NEAR: LocationSettings("ledger"), FAR: LocationSettings("recorded")},
        "secrets": SecretSettings(directory=path / "secrets"),
    }
    harness = CostHarness(path, {"main": files}, {**engine_makers(), "ledger": lambda _: engine}, durable, **settings)
    daemon = Daemon(harness.runner, harness.clock, harness.clock, SystemdNotifier({}))

    def check(reason: str) -> None:
        asyncio.run(daemon._run_round({DRIFT: {reason}}))

    def change(number: int) -> None:
        state = {"status": {"ready": False, "message": f"change {number}"}}
        health = Health.LOADING if number % 2 else Health.UNHEALTHY
        engine.meddle("workload/shop/shop-3", health=health, state=json.dumps(state))

    def follow() -> None:
        harness.runner.drift_monitor.notice(NEAR, frozenset({Key.parse("workload/shop/shop-3")}))
        check("noticed")
        assert harness.runner.flush("main", force=True)

    check("drift")
    return MeasuredChange(harness, change, follow)


CHANGES: dict[str, Callable[[Path, int, bool], MeasuredChange]] = {
    "one workload of a folder": partial(_committed, shop, _one_workload),
    "one workload of many folders": partial(
        _committed, _in_folders, lambda number: {"shop/0/0.yaml": workload(0, image=number + 1)}
    ),
    "one workload beside many GVCs": partial(_committed, _roots, _one_workload),
    "one workload that all others let in": partial(
        _committed, reached_by_others, lambda number: {"shop/3.yaml": workload(3, image=number + 1)}
    ),
    "one workload beside secrets of the host": _beside_hosted_secrets,
    "the description of a GVC": partial(_committed, shop, lambda number: {"shop/gvc.yaml": gvc(release=number + 1)}),
    "a variable of a GVC that five members inherit": partial(
        _committed, partial(shop, inheriting=5), lambda number: {"shop/gvc.yaml": gvc(variable=number + 1)}
    ),
    "a GVC of one of 20 sources": _beside_other_sources,
    "the description of a location that a query selects": partial(
        _committed, _at_queried_location, _location_described
    ),
    "the description of an identity": partial(
        _committed, shop, lambda number: {"shop/identity.yaml": identity(number + 1)}
    ),
    "the description of a policy": partial(_committed, shop, lambda number: {"shop/policy.yaml": policy(number + 1)}),
    "the value of a secret": partial(_committed, shop, lambda number: {"db.yaml": secret(value=f"'{number + 1}'")}),
    "two missing links": _missing_links,
    "a health change": _health_change,
}
"""What changes, by the words that the benchmark shows."""
