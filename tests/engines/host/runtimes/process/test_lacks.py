"""What processes cannot get is reported, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.engines.host.runtimes.process.limitations import HostRights, list_limitations
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.model.kinds.workload import Autoscaling, Command, Firewall, Internal, Options, Probe
from tests.engines.host.runtimes.process.kit import KEY

PLAIN = WorkloadSpec(
    KEY,
    Type.STANDARD,
    1,
    "digest",
    "hash",
    1,
    (ContainerSpec("main"),),
    Options(),
    firewall=Firewall(internal=Internal("same-gvc")),
)
FIREWALL = "firewall"
"""In the last sentence of all workloads."""
ROOT = HostRights(root=True, limited=True, pids=True)
WEB = ContainerSpec("web", image="nginx:1", ports=(80,), mounts=("/data", "/cache"))
SIDE = ContainerSpec("side", image="//image/side:2")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, []),
        ({"containers": (SIDE,)}, ["Images are not used (//image/side:2)"]),
        ({"containers": (SIDE,), "dynamic_tags": True}, ["Images are not used", "supportDynamicTags"]),
        ({"type": Type.CRON}, []),
        ({"type": Type.SERVERLESS}, []),
        ({"options": Options(Autoscaling("cpu")), "suspended": True}, []),
        ({"containers": (msgspec.structs.replace(WEB, image=""),)}, ["(/cache, /data)", "api.shop.platform.local"]),
        (
            {"containers": (WEB, SIDE)},
            ["(//image/side:2, nginx:1)", "(/cache, /data)", "each other by name", "api.shop."],
        ),
    ],
)
def test_only_what_is_asked_for_is_lacking_in_a_fixed_order(asked: dict[str, Any], words: list[str]) -> None:
    found = list(list_limitations(msgspec.structs.replace(PLAIN, **asked), ROOT))
    assert len(found) == len(words) + 1
    assert all(word in sentence for word, sentence in zip([*words, FIREWALL], found, strict=True))


def test_limits_lack_where_no_groups_can_be_made() -> None:
    assert [
        "limits of CPU and memory" in each
        for each in list_limitations(PLAIN, msgspec.structs.replace(ROOT, limited=False))
    ] == [True, False]


def test_only_root_changes_users() -> None:
    found = list(list_limitations(msgspec.structs.replace(PLAIN, user=4, group=5), HostRights(False, True, True)))
    assert ["user 4" in found[0], "group 5" in found[1]] == [True, True]


def test_root_changes_users() -> None:
    assert list(list_limitations(msgspec.structs.replace(PLAIN, user=4, group=5), ROOT))[:-1] == []


def test_a_workload_without_firewall_config_is_open_here_and_closed_on_the_platform() -> None:
    [sentence] = list_limitations(msgspec.structs.replace(PLAIN, firewall=Firewall()), ROOT)
    assert "without firewallConfig the platform allows no traffic" in sentence


def test_processes_are_not_limited_where_they_cannot_be_counted() -> None:
    found, _ = list_limitations(PLAIN, msgspec.structs.replace(ROOT, pids=False, processes=4000))
    assert "all containers of a user together may have 4000" in found


@pytest.mark.parametrize(
    "container",
    [
        ContainerSpec("main", liveness=Probe(exec=Command(("true",)))),
        ContainerSpec("main", readiness=Probe(exec=Command(("true",)))),
        ContainerSpec("main", post_start=Command(("true",))),
        ContainerSpec("main", pre_stop=Command(("true",))),
    ],
)
def test_programs_hidden_by_probes_and_hooks_need_control_groups(container: ContainerSpec) -> None:
    asked = msgspec.structs.replace(PLAIN, containers=(container,))
    assert list(list_limitations(asked, ROOT))[:-1] == []
    assert "a probe or a hook" in list(list_limitations(asked, msgspec.structs.replace(ROOT, limited=False)))[1]
