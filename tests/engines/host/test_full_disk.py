"""What the host engine writes where there is no room: in place, or less, and never what is not true."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.dataplane.endpoints import Endpoints
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.runtimes.process.container_view import ContainerViews
from reconciler.engines.host.runtimes.process.state_dir import StartRecord, StateDirectory
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from tests.engines.host.provisioning.kit import container_of, vault
from tests.support.programs import fill, only_root, small_disk

pytestmark = only_root("mounts a file system of its own")
WEB = Key.parse("workload/shop/web")
PLACE = ContainerId(WEB, "web-a", "main")


def ready(count: int, first: int = 0) -> list[Replica]:
    """Ready replicas with a port each."""
    numbers = range(first, first + count)
    return [Replica(f"web-{n:03}", WEB, 1, "", 0.0, (), ports={80: 20000 + n}, ready_since=1.0) for n in numbers]


def names(path: Path) -> list[str]:
    """The replicas that a file of endpoints names."""
    return [each["name"] for each in json.loads(path.read_bytes())["replicas"]]


def test_endpoints_on_a_full_disk_name_only_ready_replicas(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=1m") as disk:
        endpoints, path = Endpoints(disk / "endpoints"), disk / "endpoints" / "shop" / "web.json"
        endpoints.publish(WEB, ready(2))
        filler = fill(disk)
        endpoints.publish(WEB, ready(1))
        assert names(path) == ["web-000"]
        with pytest.raises(EngineError) as full:
            endpoints.publish(WEB, ready(200, first=1))
        assert full.value.reason == "DiskFull"
        assert names(path) == []
        filler.unlink()
        endpoints.publish(WEB, ready(200, first=1))
        assert len(names(path)) == 200
        fill(disk)
        endpoints.remove(WEB)
        assert not path.exists()


def test_a_replica_is_written_on_a_full_disk_where_it_was_before(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=1m") as disk:
        store = ReplicaStore(disk / "replicas")
        store.save(ready(1)[0])
        fill(disk)
        later = ready(1, first=0)[0]
        changed = Replica(later.name, WEB, 1, "", 0.0, (), ready_since=None, reason="Deleted")
        store.save(changed)
        assert store.load() == ([changed], [])
        with pytest.raises(EngineError) as full:
            store.save(ready(1, first=1)[0])
        assert full.value.reason == "DiskFull"
        assert store.load() == ([changed], [])
        with pytest.raises(EngineError):
            write_atomic(disk / "replicas/shop/web/web-000.json", b"x" * 5000, 0o600)
        assert store.load() == ([changed], [])


def test_a_container_can_be_started_again_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=1m") as disk:
        folders = StateDirectory(disk / "run")
        for start in range(3):
            for each in folders.prepare(PLACE):
                os.close(each)
            begun = StartRecord(PLACE, 1, "hash", -1, 100 + start, start, "boot", float(start))
            assert list(folders.records()) == []
            folders.write(begun)
            assert list(folders.records()) == [begun]
            fill(disk)


def test_files_of_a_container_are_made_in_the_place_of_the_last_ones(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "nr_inodes=200,size=1m") as disk:
        files = Files(disk / "here", vault({}), memory=None)
        container = container_of({"volumes": [{"uri": "scratch://tmp", "path": "/x"}]})
        views = ContainerViews(disk / "here", "root")
        home = Path(views.make(files.provide(PLACE, -1, container, Owner()), {}, "").defaults["HOME"])
        (home / "left").write_text("by the last start")
        with suppress(OSError):
            for number in range(1000):
                (disk / str(number)).mkdir()
        assert os.statvfs(disk).f_favail == 0
        again = views.make(files.provide(PLACE, -1, container, Owner()), {}, "")
        assert list(Path(again.defaults["HOME"]).iterdir()) == []
        assert Path(again.volumes, "x").is_dir()
