"""The ids of containers on this host: where they are, who gets none, and what doctor reports about them."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.disk.ownership import IdRange
from reconciler.engines.host.runtimes.podman.capabilities import Capabilities
from reconciler.engines.host.runtimes.podman.labels import labels_of
from reconciler.engines.host.runtimes.podman.users.mapped_mounts import lacks_for_mapped_mounts, lacks_for_namespaces
from reconciler.engines.host.runtimes.podman.users.rules import FIRST, check_users, has_namespace, id_range
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.template import users_of
from reconciler.settings import LocationSettings, PodmanSettings, Settings, UserNamespaceSettings
from tests.engines.host.runtimes.podman.kit import KEY
from tests.engines.host.runtimes.podman.test_plugin import PODMAN, sentences, wanted
from tests.support.programs import only_root
from tests.support.scratch import OWN_MOUNTS

UNUSED = range(0x7000_0000, 0x7FFE_0000)
"""The ids that systemd lists as unused."""


def test_each_location_has_ids_that_no_program_gives_away(tmp_path: Path) -> None:
    found = [id_range(labels_of(tmp_path / name, name).owner, None) for name in map(str, range(200))]
    assert all(each.first in UNUSED and each.last in UNUSED and each.first % 65_536 == 0 for each in found)
    assert len({each.first for each in found}) > 180
    assert id_range("f" * 12, None) == id_range("f" * 12, None)
    assert {id_range(f"{number:012x}", None).last in UNUSED for number in (0, 4093, 4094)} == {True}
    assert id_range("f" * 12, 200_000) == IdRange(200_000)


def test_ids_overlap_where_one_is_in_both() -> None:
    ids = IdRange(100_000)
    assert str(ids) == "100000:65536"
    assert [ids.overlaps(99_999, 1), ids.overlaps(99_999, 2), ids.overlaps(165_535, 9), ids.overlaps(165_536, 9)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("change", "fields", "words"),
    [
        ({}, {}, ""),
        ({"lacks_for_namespaces": "this host makes none"}, {}, "without a user namespace: this host makes none."),
        ({"lacks_for_mapped_mounts": "Podman is blind"}, {}, ""),
        ({"lacks_for_mapped_mounts": "Podman is blind"}, {"writes_volumes": True}, "and Podman is blind."),
    ],
)
def test_a_workload_without_a_user_namespace_shows_why(
    change: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    capabilities = msgspec.structs.replace(PODMAN, **change)
    assert words in sentences(capabilities, **fields)
    assert ("user namespace" in sentences(capabilities, **fields)) == bool(words)
    assert has_namespace(wanted(**fields), capabilities) != bool(words)


@pytest.mark.parametrize(
    ("capabilities", "spec"),
    [
        (PODMAN, wanted(host_users=True)),
        (msgspec.structs.replace(PODMAN, rootless=True, direct=False, lacks_for_namespaces="no"), wanted()),
    ],
)
def test_who_asks_for_none_or_has_one_already_gets_none_and_no_sentence(
    capabilities: Capabilities, spec: WorkloadSpec
) -> None:
    assert not has_namespace(spec, capabilities)
    assert "user namespace" not in sentences(capabilities, host_users=spec.host_users)


def test_the_settings_change_the_hash_of_replicas_only_where_they_differ_from_the_default() -> None:
    assert users_of(KEY, None) == users_of(KEY, UserNamespaceSettings()) == ()
    assert users_of(KEY, UserNamespaceSettings(host_users=("shop/other", "pay/*"))) == ()
    assert users_of(KEY, UserNamespaceSettings(host_users=("shop/a*",))) == ("host-users",)
    assert users_of(KEY, UserNamespaceSettings("host", 200_000)) == ("host-users",)
    assert users_of(KEY, UserNamespaceSettings(first_id=200_000)) == ("ids=200000",)


def problems(tmp_path: Path, subuid: str = "", limit: str = "100", **podman: Any) -> list[str]:
    """What doctor reports about a host with these files."""
    for name in ("subuid", "subgid"):
        (tmp_path / name).write_text(subuid)
    sysctl = tmp_path / "sys/user"
    sysctl.mkdir(parents=True, exist_ok=True)
    (sysctl / "max_user_namespaces").write_text(f"{limit}\n")
    chosen = PodmanSettings(user_namespaces=UserNamespaceSettings(**podman))
    locations = {
        "here": LocationSettings("host", runtime="podman"),
        "there": LocationSettings("host", runtime="process"),
    }
    settings = Settings("acme", (), tmp_path, locations=locations, podman=chosen)
    return [f"{each.message}; {each.advice}" for each in check_users(settings, tmp_path, tmp_path)]


def test_doctor_reports_ids_that_somebody_else_has(tmp_path: Path) -> None:
    own = id_range(labels_of(tmp_path / "host/here", "here").owner, None)
    assert own.first >= FIRST
    assert problems(tmp_path, "anna:100000:65536\n# a comment\nbroken:x:y\n") == []
    [text] = problems(tmp_path, f"anna:{own.last}:65536\n")
    assert f"ids of containers at here, {own}, belong to anna in {tmp_path}/subuid, anna in {tmp_path}/subgid" in text
    assert problems(tmp_path, f"anna:{own.last}:65536\n", mode="host") == []
    [text] = problems(tmp_path, f"gitops-reconciler:{own.first}:65536\nbert:{own.first}:1\n")
    assert "belong to bert in" in text
    instances = tmp_path / "sys/fs/inotify/max_user_instances"
    instances.parent.mkdir(parents=True)
    instances.write_text("128\n")
    [text] = problems(tmp_path)
    assert "share 128 inotify instances with root; sysctl fs.inotify.max_user_instances=8192" in text
    instances.write_text("1024\n")
    [text] = problems(tmp_path, limit="0")
    assert "sysctl user.max_user_namespaces" in text


def test_doctor_reports_ids_that_useradd_may_give_away(tmp_path: Path) -> None:
    missing = problems(tmp_path, "anna:100000:65536\n", first_id=200_000)
    assert [each.partition(";")[2] for each in missing] == [" add the line gitops-reconciler:200000:65536"] * 2
    assert problems(tmp_path, "anna:100000:65536\ngitops-reconciler:200000:65536\n", first_id=200_000) == []


def test_doctor_reports_users_of_this_host_among_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("carla", "x", FIRST + 70_000, 100, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [entry])
    [found] = problems(tmp_path, first_id=FIRST + 65_536)
    assert "belong to the user carla too" in found


ASKS = """
from reconciler.engines.host.runtimes.podman.users.mapped_mounts import lacks_for_namespaces
print([lacks_for_namespaces(mounts=mounts) for mounts in (False, True)])
"""


@only_root("only root maps ids of this host")
def test_a_host_that_is_a_container_and_hides_parts_of_proc_is_recognized() -> None:
    hides = [*OWN_MOUNTS, "sh", "-c", 'mount -t tmpfs t /proc/sys && exec "$@"', "sh"]
    done = subprocess.run([*hides, sys.executable, "-c", ASKS], capture_output=True, text=True, check=True)
    assert done.stdout == "['', 'this host lets none mount /proc and /sys (mount: /proc: permission denied.)']\n"


@only_root("only root maps ids of this host")
def test_a_directory_whose_file_system_maps_no_ids_is_recognized(tmp_path: Path) -> None:
    assert lacks_for_namespaces(mounts=True) == ""
    assert lacks_for_mapped_mounts(tmp_path) == ""
    assert "has no idmapped mounts (" in lacks_for_mapped_mounts(Path("/proc"))
    assert "has no idmapped mounts (" in lacks_for_mapped_mounts(tmp_path / "gone")
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp_path) in line]
    assert len(os.listdir("/proc/self/fd")) < 100
