"""Files that an older program left in the directory of a location: what the engine makes of them when it opens."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.controllers.replica_store import Store
from reconciler.engines.host.dataplane.endpoints import move_endpoints
from reconciler.engines.host.decisions.replica import Container, Ended, Hook, Phase, Replica
from reconciler.engines.host.runtimes.process.state_dir import StartRecord, StateDirectory
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.state_migration import migrate_state
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Probe, Target
from tests.engines.host.kit import Host, played
from tests.support.cases import CASES

WEB = Key(Kind.WORKLOAD, "shop", "web")


def test_endpoints_move_to_their_new_directory_and_are_found_at_the_former_one(tmp_path: Path) -> None:
    here = tmp_path / "here"

    async def story(host: Host) -> None:
        await host.apply(1)
        await host.engine.close()
        listed = (here / "endpoints/shop/web.json").read_bytes()
        (here / "endpoints").rename(here / "pool")
        for _ in range(2):
            await host.restart()
            assert (here / "endpoints/shop/web.json").read_bytes() == listed
            assert (here / "pool/shop/web.json").read_bytes() == listed
            assert not (here / "endpoints").is_symlink()

    played(tmp_path, story)


@pytest.mark.parametrize("left", ["pool", "both", "between", "nothing"])
def test_a_move_of_the_endpoints_that_broke_off_is_ended(tmp_path: Path, left: str) -> None:
    if left in ("pool", "both"):
        (tmp_path / "pool").mkdir()
        (tmp_path / "pool/file").write_text("newer")
    if left in ("both", "between"):
        (tmp_path / "endpoints").mkdir()
        (tmp_path / "endpoints/file").write_text("newer" if left == "between" else "older")
    if left == "between":
        (tmp_path / ".pool.part").symlink_to("endpoints")
    move_endpoints(tmp_path)
    if left == "nothing":
        assert list(tmp_path.iterdir()) == []
        return
    assert sorted(path.name for path in tmp_path.iterdir()) == ["endpoints", "pool"]
    assert {(tmp_path / name / "file").read_text() for name in ("endpoints", "pool")} == {"newer"}
    assert (tmp_path / "pool").readlink() == Path("endpoints")


def test_a_move_of_the_endpoints_that_fails_leaves_them_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool/file").write_text("newer")
    (tmp_path / "endpoints").write_text("in the way")
    move_endpoints(tmp_path)
    assert (tmp_path / "pool/file").read_text() == "newer"


REPLICA = Replica(
    "web-x",
    WEB,
    3,
    "0a1b",
    10.0,
    (
        Container(
            "main",
            Phase.ENDED,
            11.0,
            restarts=1,
            failures=2,
            start_at=12.0,
            last=Ended(-1, 11.5, "StartFailed", 'NoCommand: no "stamp": here'),
            pre_stop=Hook.DONE,
            sigterm_at=13.0,
            sigkill_at=14.0,
            wanted=ContainerSpec("main", "web:1", readiness=Probe(http_get=Target(path="/due")), ports=(8080,)),
        ),
        Container(
            "side",
            Phase.RUNNING,
            11.0,
            True,
            last=Ended(143, 9.0, "LivenessFailed", "no answer"),
            wanted=ContainerSpec("side"),
            was_ready=True,
        ),
    ),
    ports={8080: 21649},
    ending=12.5,
    reason="Deleted",
    creation_timestamp="2026-01-01T00:00:00Z",
)
"""What cases/host-files/former-replica.json contains; an older program wrote it."""

RECORD = StartRecord(
    ContainerId(WEB, "web-x", "main"), 3, "0a1b", -1, 4711, 99, "BOOT", 11.0, ("/sys/fs/cgroup/x",), {8080: 21649}
)
"""What cases/host-files/former-start-record.json contains."""


LATER = {"base_hash", "run", "own_sleep", "metrics", "min_cpu", "min_memory", "termination_seconds"}
"""Fields that are newer than the current names; a file without them has their defaults."""


def former(name: str, path: Path) -> Path:
    """The file ``name`` of an older program at ``path``."""
    path.parent.mkdir(parents=True)
    path.write_bytes((CASES / "host-files" / name).read_bytes())
    return path


def test_the_file_of_a_replica_is_read_in_its_former_form_and_written_in_that_of_today(tmp_path: Path) -> None:
    file = former("former-replica.json", tmp_path / "replicas/shop/web/web-x.json")
    store = Store(tmp_path / "replicas", boots=("BOOT",))
    assert store.load() == ([REPLICA], [])
    migrate_state(tmp_path)
    assert store.load() == ([REPLICA], [])
    today = msgspec.json.decode(msgspec.json.encode({"boot": "BOOT", "replica": REPLICA}))
    for later in (today["replica"], *(each["wanted"] for each in today["replica"]["containers"])):
        for name in LATER & later.keys():
            del later[name]
    assert msgspec.json.decode(file.read_bytes()) == today


def test_the_record_of_a_start_is_read_in_its_former_form_and_written_in_that_of_today(tmp_path: Path) -> None:
    file = former("former-start-record.json", tmp_path / "run/shop/web/web-x/main/record.json")
    folders = StateDirectory(tmp_path / "run")
    assert list(folders.records()) == [RECORD]
    folders.migrate()
    assert list(folders.records()) == [RECORD]
    assert file.read_bytes() == msgspec.json.encode(RECORD)


def test_a_file_that_is_no_json_or_of_another_shape_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "replicas/shop/web/web-x.json"
    file.parent.mkdir(parents=True)
    for content in (b'{"stamp":', b'{"stamp":1}', b'{"stamp":1,"replica":{"containers":[1]}}'):
        file.write_bytes(content)
        migrate_state(tmp_path)
        assert file.read_bytes() == content


def test_replicas_of_a_former_daemon_go_on_by_files_in_their_former_form(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await host.apply(1)
        await host.engine.close()
        [file] = (tmp_path / "here/replicas").glob("*/*/*.json")
        written = file.read_bytes()
        calls = list(host.programs.calls)
        file.write_bytes(
            written.replace(b'"config_hash":', b'"stamp":')
            .replace(b'"creation_timestamp":', b'"born":')
            .replace(b'"start_at":', b'"due":')
        )
        await host.restart()
        assert file.read_bytes() == written
        await host.until(lambda found: [each.version for each in found if each.ready] == [1])
        assert host.programs.calls == calls

    played(tmp_path, story)
