"""The cost of a commit follows what it changes and not what there is: at ten times the size at most 1.5 times the work.

The first change of each kind is not counted: it fills caches, as in a daemon.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.daemon.loop import Daemon
from reconciler.daemon.systemd import SystemdNotifier
from reconciler.daemon.wake import DRIFT
from reconciler.engines.registry import ENGINES
from reconciler.model.record import Health
from reconciler.settings import LocationSettings, SecretSettings
from tests.cost.shop import FAR, NEAR, Files, gvc, identity, policy, secret, shop, workload
from tests.cost.site import Cost, CostSite
from tests.support.engines import LedgerEngine
from tests.support.rule_cases import private

FEW, MANY = 30, 300
MOST = 1.5
SLACK = Cost(calls=300, statements=5, instructions=100, decodes=0, checks=0, objects=1, bytes=20_000)
"""What a count may differ by for other reasons. A status directory is divided from 512 entries of 40 bytes on."""

Change = Callable[[int], Files]
"""The files of the first, of the second, … commit."""


def assert_follows(few: Cost, many: Cost) -> None:
    """Check that ten times the size costs at most 1.5 times as much."""
    over = {
        name: (before, after)
        for name, before, after, slack in zip(Cost._fields, few, many, SLACK, strict=True)
        if after > MOST * before + slack
    }
    assert over == {}


def measured(path: Path, sources: dict[str, Files], change: Change, outcome: str = "applied") -> Cost:
    """The cost of the second commit."""
    site = CostSite(path, sources)
    site.commit(change(2), outcome=outcome)
    return site.commit(change(3), outcome=outcome)


def in_folders(count: int) -> Files:
    files = {path: text for path, text in shop(count).items() if "kind: workload" not in text}
    return files | {f"shop/{number % (count // 10)}/{number}.yaml": workload(number) for number in range(count)}


def documents(count: int, image: int = 1) -> Files:
    files = shop(count) | {"shop/3.yaml": workload(3, image=image)}
    return {"all.yaml": "---\n".join(files.values())}


def roots(count: int) -> Files:
    return shop(5) | {f"{number}/gvc.yaml": gvc(f"gvc-{number}") for number in range(count)}


CHANGES: dict[str, tuple[Callable[[int], Files], Change]] = {
    "one-workload-of-a-folder": (shop, lambda turn: {"shop/3.yaml": workload(3, image=turn)}),
    "one-workload-of-many-folders": (in_folders, lambda turn: {"shop/0/0.yaml": workload(0, image=turn)}),
    "one-workload-beside-many-gvcs": (roots, lambda turn: {"shop/3.yaml": workload(3, image=turn)}),
    "gvc-description": (shop, lambda turn: {"shop/gvc.yaml": gvc(release=turn)}),
    "gvc-variable-that-five-inherit": (
        lambda count: shop(count, inheriting=5),
        lambda turn: {"shop/gvc.yaml": gvc(variable=turn)},
    ),
    "identity-description": (shop, lambda turn: {"shop/identity.yaml": identity(turn)}),
    "policy-description": (shop, lambda turn: {"shop/policy.yaml": policy(turn)}),
    "secret-value": (shop, lambda turn: {"db.yaml": secret(value=f"'{turn}'")}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_commit_costs_the_same_among_more_resources(tmp_path: Path, name: str) -> None:
    files, change = CHANGES[name]
    few, many = (measured(tmp_path / str(count), {"main": files(count)}, change) for count in (FEW, MANY))
    assert_follows(few, many)


def test_a_refused_commit_with_missing_links_costs_the_same_among_more_resources(tmp_path: Path) -> None:
    def change(turn: int) -> Files:
        text = (
            workload(3, image=turn).replace("identity/service", "identity/servce").replace("secret/db.", "secret/bd.")
        )
        return {"shop/3.yaml": text}

    few, many = (measured(tmp_path / str(count), {"main": shop(count)}, change, "refused") for count in (FEW, MANY))
    assert_follows(few, many)


def test_one_document_of_a_file_is_decoded_alone(tmp_path: Path) -> None:
    few, many = (
        measured(tmp_path / str(count), {"main": documents(count)}, lambda turn, count=count: documents(count, turn))
        for count in (FEW, MANY)
    )
    assert few.decodes == many.decodes == 2  # the commit's own, and its former version
    # The other documents come from the cache and are compared: no more than that grows, and no faster than the file.
    assert many.calls < MANY / FEW * few.calls


def hosted(path: Path, count: int) -> Files:
    """Secrets whose values are files of this host, in ``path``."""
    path.mkdir(parents=True)
    for number in range(count):
        private(path / str(number), "not-a-real-password")
    return {f"secrets/{number}.yaml": secret(f"s{number}", f"{{file: '{number}'}}") for number in range(count)}


def test_a_commit_reads_no_secret_of_the_host(tmp_path: Path) -> None:
    costs = []
    for count in (FEW, MANY):
        path = tmp_path / str(count)
        files = shop(5) | hosted(path / "secrets", count)
        site = CostSite(path, {"main": files}, secrets=SecretSettings(directory=path / "secrets"))
        site.commit({"shop/3.yaml": workload(3, image=2)})
        costs.append(site.commit({"shop/3.yaml": workload(3, image=3)}))
    assert_follows(*costs)


def test_a_gvc_of_one_source_leaves_the_others_alone(tmp_path: Path) -> None:
    def sources(count: int) -> dict[str, Files]:
        found = {f"s{number}": shop(count // 10, name=f"shop-{number}") for number in range(10)}
        return {name: files if name == "s0" else files | {"db.yaml": ""} for name, files in found.items()}

    few, many = (
        measured(tmp_path / str(count), sources(count), lambda turn: {"shop-0/gvc.yaml": gvc("shop-0", variable=turn)})
        for count in (FEW, MANY)
    )
    assert_follows(few, many)


def test_a_health_change_costs_the_same_beside_more_resources_and_secrets(tmp_path: Path) -> None:
    few, many = (cost_of_health_change(tmp_path / str(count), count) for count in (FEW, MANY))
    assert_follows(few, many)


def cost_of_health_change(path: Path, count: int) -> Cost:
    """The cost of the second change that an engine notices, in the daemon; ``count`` workloads are elsewhere."""
    files = shop(5) | shop(count, name="far", location=FAR) | hosted(path / "secrets", count)
    engine = LedgerEngine(path / "ledger", NEAR)
    site = CostSite(
        path,
        {"main": files},
        {**ENGINES, "ledger": lambda _: engine},
        locations={NEAR: LocationSettings("ledger"), FAR: LocationSettings("recorded")},
        secrets=SecretSettings(directory=path / "secrets"),
    )
    daemon = Daemon(site.runner, site.clock, site.clock, SystemdNotifier({}))

    def check() -> None:
        asyncio.run(daemon._run_round({DRIFT: {"noticed"}}))
        assert site.runner.flush("main", force=True)

    check_all = {DRIFT: {"drift"}}
    asyncio.run(daemon._run_round(check_all))
    for health in (Health.LOADING, Health.UNHEALTHY):
        state = {"status": {"ready": False, "message": health}}
        engine.meddle("workload/shop/shop-3", health=health, state=json.dumps(state))
        cost = site.cost(check)
    return cost
