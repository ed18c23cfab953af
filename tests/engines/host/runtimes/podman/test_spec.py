"""What is asked of Podman for each container, and what never is."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.disk.ownership import IdRange
from reconciler.engines.host.runtimes.podman.api.image_users import user_number
from reconciler.engines.host.runtimes.podman.labels import PodmanLabels, labels_of
from reconciler.engines.host.runtimes.podman.network.pause import pause_image
from reconciler.engines.host.runtimes.podman.spec import (
    ContainerPaths,
    Surroundings,
    Ulimits,
    container_body,
    hosts_file,
    limits_body,
    quota_body,
    sandbox_body,
)
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, Mount
from reconciler.engines.workload.spec import Restriction
from reconciler.errors import EngineError
from reconciler.model.platform import BLOCKED_PORTS
from tests.engines.host.runtimes.podman.kit import KEY, launch, place
from tests.support.cases import cases

LABELS = PodmanLabels("0123456789ab", "here")
ALL = frozenset({"cpu", "memory", "pids"})
AROUND = Surroundings(LABELS, "/parent", Ulimits(4096, 2048), ALL)
PATHS = ContainerPaths(Path("/state/output"), Path("/state/hosts"), Path("/state/endpoints"))


def launch_of(fields: dict[str, Any]) -> ContainerStart:
    mounts = tuple(Mount(**{**each, "source": Path(each["source"])}) for each in fields.pop("mounts", ()))
    at = ContainerId(KEY, fields.pop("replica", "r"), "main")
    return launch(*fields.pop("args", ()), at=at, mounts=mounts, **{"image": "localhost/app:1", **fields})


@pytest.mark.parametrize("case", cases("podman/containers.yaml"))
def test_the_request_for_a_container_follows_its_manifest(case: dict[str, Any]) -> None:
    body = container_body(launch_of({**case["launch"]}), AROUND, "box", PATHS, "n1")
    body = msgspec.json.decode(msgspec.json.encode(body))
    assert {name: body.get(name) for name in case["body"]} == case["body"]
    assert not body.keys() & set(case.get("absent", ()))
    labels = {name.rpartition(".")[2]: value for name, value in body["labels"].items()}
    assert labels.items() >= case.get("labels", {}).items()


@pytest.mark.parametrize("case", cases("podman/refused.yaml"))
def test_what_is_hostile_is_never_asked_for(case: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match=case["message"]) as refused:
        container_body(launch_of({**case["launch"]}), AROUND, "box", PATHS, "n1")
    assert not refused.value.retry


def test_more_variables_than_the_kernel_takes_are_refused_and_ten_thousand_are_not() -> None:
    many = {f"V{number}": "x" * 400 for number in range(10_000)}
    assert container_body(launch(env=many), AROUND, "box", PATHS, "n")["env"] == many
    with pytest.raises(EngineError, match="6 MiB"):
        container_body(launch(env=dict.fromkeys(many, "x" * 700)), AROUND, "box", PATHS, "n")


def test_a_restricted_container_has_fewer_capabilities_and_writes_only_where_it_may() -> None:
    volume = Mount(Path("/vols/tmp"), "/tmp", read_only=False)
    restricted = launch(mounts=(volume,), restriction=Restriction(read_only=True, dropped=("SETFCAP", "SETPCAP")))
    body = container_body(restricted, AROUND, "box", PATHS, "n1")
    assert body["cap_drop"] == ["CAP_AUDIT_WRITE", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETPCAP"]
    assert body["read_only_filesystem"] is True
    assert [each["destination"] for each in body["mounts"] if each["type"] == "tmpfs"] == ["/run", "/var/tmp"]
    body = container_body(launch(restriction=Restriction(dropped=("ALL",))), AROUND, "box", PATHS, "n1")
    assert body["cap_drop"] == ["ALL"]
    assert "read_only_filesystem" not in body


def test_a_sandbox_publishes_the_ports_of_the_whole_replica_on_this_host_alone() -> None:
    start = launch(ports={80: 25001}, replica_ports={80: 25001, 90: 25002}, siblings=("main", "side"))
    body = sandbox_body(start, AROUND, "localhost/pause:1", "n1")
    published = [(each["host_ip"], each["host_port"], each["container_port"]) for each in body["portmappings"]]
    assert published == [("127.0.0.1", 25001, 80), ("127.0.0.1", 25002, 90)]
    assert body["networks"] == {LABELS.network: {}}
    assert "portmappings" not in sandbox_body(start, AROUND, "p", "n", published=True)
    assert (body["cap_drop"], body["read_only_filesystem"], body["hostname"]) == (["ALL"], True, "r")
    assert (body["ipcns"], body["use_image_hosts"]) == ({"nsmode": "none"}, True)
    assert hosts_file(start).splitlines()[-3:] == ["127.0.0.1 r r.api", "127.0.0.1 main", "127.0.0.1 side"]


def test_the_containers_of_a_replica_are_in_the_user_namespace_of_its_sandbox() -> None:
    start = launch(ids=IdRange(200_000))
    box = sandbox_body(start, AROUND, "localhost/pause:1", "n1")
    ids = [{"container_id": 0, "host_id": 200_000, "size": 65_536}]
    assert (box["userns"], box["idmappings"]) == ({"nsmode": "private"}, {"UIDMap": ids, "GIDMap": ids})
    body = container_body(start, AROUND, "box", PATHS, "n2")
    assert body["userns"] == body["netns"] == {"nsmode": "container", "value": "box"}
    assert [each["type"] for each in body["mounts"] if each["destination"].startswith("/sys")] == ["sysfs", "cgroup"]
    for labels in (LABELS.container(start, "n1"), LABELS.sandbox(start, "n2")):
        found = LABELS.read(labels)
        assert found is not None
        assert found.ids == IdRange(200_000)
    for plain in (sandbox_body(launch(), AROUND, "p", "n"), container_body(launch(), AROUND, "box", PATHS, "n")):
        assert not plain.keys() & {"userns", "idmappings"}


def test_labels_of_an_older_version_mean_no_user_namespace() -> None:
    labels = LABELS.container(launch(), "n1")
    (name,) = [each for each in labels if each.endswith(".ids")]
    assert labels.pop(name) == ""
    found = LABELS.read(labels)
    assert found is not None
    assert found.ids is None


def test_user_1337_has_no_network() -> None:
    body = sandbox_body(launch(user=1337, replica_ports={80: 25001}), AROUND, "localhost/pause:1", "n1")
    assert body["netns"] == {"nsmode": "none"}
    assert not body.keys() & {"networks", "portmappings"}


@pytest.mark.parametrize(("cpu", "quota"), [(50, 5_000), (1_000, 100_000), (4_000, 400_000), (1, 1_000)])
def test_a_quota_of_cpu_follows_the_start(cpu: int, quota: int) -> None:
    assert quota_body(cpu, ALL) == {"cpu": {"quota": quota, "period": 100_000}}
    assert quota_body(cpu, frozenset()) is None


def test_limits_that_this_podman_cannot_set_are_not_asked_for() -> None:
    around = msgspec.structs.replace(AROUND, controllers=frozenset({"memory"}), cgroup_parent="")
    body = container_body(launch(), around, "box", PATHS, "n1")
    assert body["resource_limits"].keys() == {"memory"}
    assert "cgroup_parent" not in body


def test_labels_carry_everything_that_an_adoption_needs() -> None:
    start = launch(version=3, config_hash="a/b", index=2, ports={80: 25001}, replica_ports={80: 25001, 90: 25002})
    labelled = LABELS.read(LABELS.container(start, "n1"))
    assert labelled is not None
    assert (labelled.place, labelled.version, labelled.config_hash, labelled.index) == (place(), 3, "a/b", 2)
    assert (labelled.ports, labelled.cpu) == ({80: 25001}, 50)
    sandbox = LABELS.read(LABELS.sandbox(start, "n2"))
    assert sandbox is not None
    assert (sandbox.place.container, sandbox.ports) == ("", {80: 25001, 90: 25002})


@pytest.mark.parametrize(
    "change",
    [
        {"owner": "another"},
        {"gvc": ".."},
        {"replica": "a/b"},
        {"container": "a\nb"},
        {"version": "x"},
        {"index": ""},
        {"cpu": "x"},
        {"ids": "1"},
        {"ids": "0:-1"},
        {"ports": "no"},
        {"workload": ""},
    ],
)
def test_labels_that_we_did_not_write_mean_nothing(change: dict[str, str]) -> None:
    labels = LABELS.container(launch(), "n1")
    (prefix,) = {name.rpartition(".")[0] for name in labels}
    assert LABELS.read(labels | {f"{prefix}.{name}": value for name, value in change.items()}) is None
    assert LABELS.read(None) is None


def test_each_location_and_each_state_directory_is_an_owner_of_its_own(tmp_path: Path) -> None:
    owners = {labels_of(tmp_path / root, location).owner for root in "ab" for location in ("here", "there")}
    assert len(owners) == 4


def test_the_image_of_sandboxes_is_the_same_bytes_each_time() -> None:
    first, second = (pause_image("amd64", BLOCKED_PORTS) for _ in range(2))
    other = pause_image("amd64", [8012])
    assert first == second
    assert first is not None
    assert other is not None
    assert first.reference.startswith("localhost/reconciler-pause:")
    assert other.reference != first.reference


def test_a_sandbox_has_the_filter_of_system_calls_that_its_image_brings() -> None:
    assert sandbox_body(launch(), AROUND, "localhost/pause:1", "n1")["seccomp_policy"] == "image"
    assert "seccomp_policy" not in container_body(launch(), AROUND, "box", PATHS, "n1")
    made = pause_image("amd64", BLOCKED_PORTS)
    assert made is not None
    with tarfile.open(fileobj=io.BytesIO(made.archive)) as tar:
        blobs = [file.read() for each in tar if (file := tar.extractfile(each)) is not None]
    [config] = [json.loads(each)["config"] for each in blobs if b'"rootfs"' in each]
    profile = json.loads(config["Labels"]["io.containers.seccomp.profile"])
    [rule] = profile["syscalls"]
    assert {"mount", "unshare", "setns", "ptrace", "bpf", "keyctl"} < {*rule["names"]}
    assert (rule["action"], profile["defaultAction"]) == ("SCMP_ACT_ERRNO", "SCMP_ACT_ALLOW")


def test_a_user_that_an_image_names_is_read_from_its_own_files() -> None:
    content = b"root:x:0:0::/:/bin/sh\nbroken\napp:x:1000:1000::/:/bin/sh\n"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("passwd")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    assert [user_number(out.getvalue(), name) for name in ("app", "root", "nobody")] == [1000, 0, 0]
    with pytest.raises(EngineError, match="is not a file of at most 1 MiB"):
        user_number(b"no archive", "app")


def test_an_update_has_the_limits_that_this_podman_can_set() -> None:
    cpu, memory = {"shares": 204, "quota": 20_000, "period": 100_000}, {"limit": 64 << 20, "swap": 64 << 20}
    assert limits_body(200, 64 << 20, frozenset({"cpu", "memory", "pids"})) == {"cpu": cpu, "memory": memory}
    assert limits_body(200, 64 << 20, frozenset({"memory"})) == {"memory": memory}
    assert limits_body(200, 64 << 20, frozenset()) == {}
