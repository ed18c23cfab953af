"""What processes cannot be given is said, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.engines.host.runtimes.process.limitations import limitations
from reconciler.engines.host.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.model.kinds.workload import Autoscaling, Options
from tests.engines.host.processes.kit import KEY

PLAIN = WorkloadSpec(KEY, Type.STANDARD, 1, "digest", "stamp", 1, (ContainerSpec("main"),), Options())
WEB = ContainerSpec("web", image="nginx:1", ports=(80,), mounts=("/data", "/cache"))
SIDE = ContainerSpec("side", image="//image/side:2")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, []),
        ({"containers": (SIDE,)}, ["Images are not used (//image/side:2)"]),
        ({"containers": (SIDE,), "dynamic_tags": True}, ["Images are not used", "supportDynamicTags"]),
        ({"type": Type.CRON}, ["schedule is not followed"]),
        ({"type": Type.SERVERLESS}, ["nothing scales by concurrency"]),
        ({"options": Options(Autoscaling("rps", min_scale=2, max_scale=2))}, []),
        ({"options": Options(Autoscaling("cpu")), "suspended": True}, []),
        ({"containers": (msgspec.structs.replace(WEB, image=""),)}, ["(/cache, /data)", "api.shop.platform.local"]),
        (
            {"containers": (WEB, SIDE), "firewall": True},
            ["(//image/side:2, nginx:1)", "(/cache, /data)", "each other by name", "api.shop.", "firewall"],
        ),
    ],
)
def test_only_what_is_asked_for_is_lacking_in_a_fixed_order(asked: dict[str, Any], words: list[str]) -> None:
    found = list(limitations(msgspec.structs.replace(PLAIN, **asked), limited=True, root=True))
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))


def test_limits_lack_where_no_groups_can_be_made() -> None:
    assert ["limits of CPU and memory" in each for each in limitations(PLAIN, limited=False, root=True)] == [True]


def test_only_root_changes_users() -> None:
    found = list(limitations(msgspec.structs.replace(PLAIN, user=4, group=5), limited=True, root=False))
    assert ["user 4" in found[0], "group 5" in found[1]] == [True, True]


def test_root_changes_users() -> None:
    assert list(limitations(msgspec.structs.replace(PLAIN, user=4, group=5), limited=True, root=True)) == []
