"""What a runtime gives containers that have a file system and a network of their own, as images have."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.dataplane.ports import can_bind_port
from reconciler.engines.host.decisions.transitions import new_replica
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.host.provisioning.template_store import TemplateStore
from reconciler.engines.host.runtimes.protocol import ContainerStart
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key
from reconciler.settings import HostSettings
from tests.engines.host.fake import FakeRuntime, Programs, QuickClock
from tests.engines.host.provisioning.kit import around, attach_volumes, container_of, spec_of, vault, volumes_at
from tests.engines.host.provisioning.test_ports import listening

KEY = Key.parse("workload/shop/web")
SECRETS = {"s": {"type": "dictionary", "data": {"user": "shop"}}}
CONTAINER = {
    "name": "main",
    "image": "plain",
    "workingDir": "/srv",
    "args": ["--data=$(RECONCILER_VOLUMES)/data", "--port=$(PORT)"],
    "ports": [{"number": 8080, "protocol": "http"}],
    "volumes": [
        {"uri": "platform://secret/s", "path": "/s"},
        {"uri": "platform://volumeset/data", "path": "/data"},
        {"uri": "scratch://a", "path": "/a"},
    ],
}


class ImageProvisioning:
    """A provisioner before a runtime of images, and one replica."""

    def __init__(self, root: Path) -> None:
        self.programs = Programs(QuickClock())
        self.runtime = FakeRuntime(self.programs)
        spec = spec_of(CONTAINER)
        workload = workload_spec(AppliedWorkload(KEY, "here", spec, 1, "digest"), "hash")
        templates = TemplateStore()
        templates.add(ReplicaTemplate(workload, spec, around()), ())
        files = Files(root, vault(SECRETS), memory=None)
        volumes = volumes_at(root)
        self.provisioner = Provisioner(files, vault(SECRETS), self.runtime, HostSettings(), templates, volumes)
        attach_volumes(root, container_of(CONTAINER), 0, Owner())
        ports = self.provisioner.ports(workload, "web-0")
        self.replica = msgspec.structs.replace(new_replica(workload, 0, "web-0", 0.0, ""), ports=ports)

    def launch(self) -> ContainerStart:
        """What its container is started with."""
        return self.provisioner.launch(self.replica, "main")


@pytest.fixture
def provisioning(tmp_path: Path) -> ImageProvisioning:
    """A provisioner in a directory of the test."""
    return ImageProvisioning(tmp_path)


def test_files_are_mounted_at_their_paths_and_no_directory_of_volumes_is_named(provisioning: ImageProvisioning) -> None:
    start = provisioning.launch()
    assert {mount.path: mount.read_only for mount in start.mounts} == {"/s": True, "/data": False, "/a": False}
    assert all(mount.source.exists() for mount in start.mounts)
    assert (start.env["RECONCILER_VOLUMES"], start.env["RECONCILER_ENDPOINTS"]) == ("", "/endpoints")
    assert start.args == ("--data=/data", "--port=8080")


def test_variables_that_an_image_sets_are_left_to_it(provisioning: ImageProvisioning) -> None:
    start = provisioning.launch()
    assert not start.env.keys() & {"HOME", "HOSTNAME", "LANG", "PATH", "TMPDIR"}
    assert start.directory == "/srv"


def test_a_program_listens_on_the_declared_port_and_this_host_on_the_assigned_one(
    provisioning: ImageProvisioning,
) -> None:
    start = provisioning.launch()
    assert (start.env["PORT"], start.env["PORT_8080"]) == ("8080", "8080")
    assert start.ports == provisioning.replica.ports
    assert start.ports[8080] != 8080


async def test_ports_that_the_runtime_holds_stay_at_a_restart(provisioning: ImageProvisioning) -> None:
    port = provisioning.replica.ports[8080]
    with listening("127.0.0.1", port):
        assert not can_bind_port(port)
        moved = provisioning.provisioner.reassign_ports(provisioning.replica, "main")
        assert moved[8080] != port
        provisioning.replica = msgspec.structs.replace(provisioning.replica, ports=moved)
    with listening("127.0.0.1", moved[8080]):
        await provisioning.runtime.start(provisioning.launch())
        assert provisioning.provisioner.reassign_ports(provisioning.replica, "main") == moved


def test_nothing_of_it_is_made_that_only_processes_need(provisioning: ImageProvisioning, tmp_path: Path) -> None:
    provisioning.launch()
    assert not list(tmp_path.rglob(".own"))
