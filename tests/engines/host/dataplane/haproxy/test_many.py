"""Many workloads on one real HAProxy: what is read of it and compared, and what is not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.dataplane.haproxy import proxy
from reconciler.engines.host.dataplane.haproxy.config import backend_name
from reconciler.engines.host.dataplane.haproxy.desired import DesiredState
from reconciler.engines.host.dataplane.haproxy.proxy import reload_pause
from reconciler.engines.host.dataplane.ports import ServicePorts
from reconciler.model.key import Key
from reconciler.settings import HostSettings
from tests.engines.host.dataplane.haproxy.kit import KEY, SERVICE, Plane, WebReplica, get, play
from tests.engines.host.dataplane.kit import until

KEYS = [Key(KEY.kind, "shop", f"web-{number}") for number in range(proxy.FEW + 5)]


def test_what_an_outsider_changes_is_found_among_many_workloads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "WHOLE_SECONDS", 0.5)

    async def story(plane: Plane) -> None:
        replica = await WebReplica("a").start()
        counted, *others = KEYS
        for key in others:
            plane.dataplane.update(key, (replica.endpoint,))
            plane.dataplane.publish(msgspec.structs.replace(SERVICE, key=key, scales_by_requests=False))
        address = await plane.address(msgspec.structs.replace(SERVICE, key=counted), replica)
        await until(lambda: all(plane.dataplane.address(key) for key in others))
        assert (await get(address)).body == "a"
        traffic = await plane.dataplane.traffic()
        assert {key: counts.arrived for key, counts in traffic.items()} == {counted: 1}

        changed = others[-1]
        await plane.dataplane._master.send([f"set server {backend_name(changed)}/a state maint"])
        # Until it is ready again, the request waits.
        assert (await get(plane.dataplane.address(changed))).body == "a"
        # The counts of all together are read in another way than those of a few.
        for key in others:
            plane.dataplane.publish(msgspec.structs.replace(SERVICE, key=key))
        traffic = await plane.dataplane.traffic()
        assert sum(counts.arrived for counts in traffic.values()) == 2
        assert traffic.keys() == {*KEYS}

    play(lambda: Plane(path), story)


@pytest.mark.parametrize(("former", "seconds"), [(0, 1.0), (3, 1.0), (4, 2.0), (19, 17.0)])
def test_reloads_become_rare_while_former_workers_have_connections(former: int, seconds: float) -> None:
    assert reload_pause(former) == seconds


def test_a_backend_is_built_again_only_after_a_change(tmp_path: Path) -> None:
    state = DesiredState(ServicePorts(tmp_path / "ports.json", HostSettings()))
    for key in KEYS:
        state.publish(msgspec.structs.replace(SERVICE, key=key))
        state.update(key, ())
    live = {backend_name(key): proxy.LiveBackend(0, 0, 0, {}) for key in KEYS}
    before = state.backends(live, 0.0)
    state.update(KEYS[3], ())
    state.publish(msgspec.structs.replace(SERVICE, key=KEYS[4], debug=True))
    state.withdraw(KEYS[5])
    after = {each.service.key: each for each in state.backends(live, 0.0)}
    assert {each.service.key for each in before if after.get(each.service.key) is not each} == {*KEYS[3:6]}
    assert after[KEYS[4]].service.debug
    assert [*after] == sorted(after)
