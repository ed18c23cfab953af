"""Containers in user namespaces over Debian's Podman: no rights on this host, files with the same owners inside."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.host.controllers.ephemeral_storage import storage_used
from reconciler.engines.host.dataplane.ports import free_ports
from reconciler.engines.host.disk.ownership import IdRange, Owner
from reconciler.engines.host.engine import HostEngine
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.runtimes.podman import runtime as podman_runtime
from reconciler.engines.host.runtimes.podman.labels import labels_of
from reconciler.engines.host.runtimes.podman.runtime import PodmanRuntime
from reconciler.engines.host.runtimes.podman.users.rules import id_range
from reconciler.engines.host.runtimes.protocol import Mount
from reconciler.engines.host.volumes.protocol import VolumeSpec
from reconciler.engines.host.volumes.space import Reserve
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.volumes import VolumeId
from reconciler.engines.workload.spec import Restriction
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.planning.plan import Action
from reconciler.reasons import Reason
from reconciler.settings import HostSettings, LocationSettings, Settings
from reconciler.terminal.session import TerminalSize
from tests.engines.host.provisioning.kit import container_of, vault
from tests.engines.host.runtimes.podman.kit import KEY, launch, place, shell
from tests.engines.host.runtimes.podman.test_plugin import wanted
from tests.engines.host.runtimes.podman.test_real import OWNERS, SLEEP, fetch, hosted, limits, run
from tests.engines.host.runtimes.podman.test_real import _nothing_is_left as _nothing_is_left
from tests.engines.host.runtimes.podman.test_real import service as service
from tests.support.host_sandbox import let_others_through
from tests.support.plans import ExecutorHarness, ends, plan, step
from tests.support.podman import APP_IMAGE, IMAGE, PodmanService, busybox_image
from tests.support.scratch import OWN_MOUNTS
from tests.support.waiting import until

IDS = IdRange(1_900_544_000)
FAR_IMAGE = "localhost/reconciler-test-far:1"
BLOCKED_IMAGE = "localhost/reconciler-test-blocked:2"
DATA, DB = Key.parse("volumeset/shop/data"), Key.parse("workload/shop/db")
APP = 1000
"""The user of APP_IMAGE."""


def users(pid: int) -> tuple[int, list[str]]:
    """The user of a process on this host, and the mapping of the users of its namespace."""
    return Path(f"/proc/{pid}").stat().st_uid, Path(f"/proc/{pid}/uid_map").read_text().split()


def mounts_left(root: Path) -> list[str]:
    """What is mounted below the directory of a location, for whom ever, and what is left of mount points there."""
    lines = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {root}/" in line]
    return [*lines, *(str(path) for path in root.glob("mapped-volumes/*"))]


def can_read(path: Path, user: int) -> bool:
    """Whether a user of this host reads a file."""
    done = subprocess.run(["cat", path], user=user, group=user, extra_groups=[], capture_output=True, check=False)
    return done.returncode == 0


def test_root_of_a_container_is_a_user_without_rights_on_this_host(tmp_path: Path, service: PodmanService) -> None:
    (ports,) = [free_ports([80], (), spread="namespace")]
    script = f"""
        id -u; echo page > /index.html; echo out > /dev/stdout; echo error > /dev/stderr
        dd if=/dev/zero of=/own bs=4096 count=512 2> /dev/null; stat -c %u:%g /own /bin/busybox
        ls /sys/class/net; cat /proc/sys/user/max_inotify_instances
        cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes 2>/dev/null || cat memory.max
        httpd -p 80 -h /; {SLEEP}
    """

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            await host.runtime.start(shell(script, ids=IDS, replica_ports=ports, ports=ports, cpu=200, memory=64 << 20))
            lines = (await host.wrote("ready")).splitlines()
            half = str(min(128, int(Path("/proc/sys/fs/inotify/max_user_instances").read_text()) // 2))
            known = ["0", "out", "error", "0:0", "0:0", "eth0", "lo", half, str(64 << 20), "ready"]
            assert sorted(lines) == sorted(known)
            sandbox, main = host.tracked(place(container="")).program, host.tracked(place()).program
            for process in (sandbox, main):
                assert users(process.pid) == (IDS.first, ["0", str(IDS.first), "65536"])
            assert storage_used(host.runtime.written_paths(place()), 1 << 30) > 4096 * 512
            spaces = {os.readlink(f"/proc/{pid}/ns/user") for pid in (sandbox.pid, main.pid)}
            assert spaces != {os.readlink("/proc/self/ns/user")}
            assert len(spaces) == 1
            assert await asyncio.to_thread(fetch, ports[80], "index.html") == b"page\n"
            done = await host.runtime.exec(place(), ["sh", "-c", "id -u; echo probe > /dev/stdout"], 10)
            assert (done.code, done.output) == (0, "0\nprobe\n")
            session = await host.runtime.open_session(place(), ["sh", "-c", "id -u; tty"], TerminalSize(30, 100))
            seen = b""
            while (output := await session.read()) is not None:
                seen += output.content
            assert seen.split() == [b"0", b"/dev/pts/0"]
            assert await session.wait() == 0
            await session.close()
            await host.runtime.resize(place(), 300, 96 << 20)
            assert {limits(host)[name] for name in limits(host)} >= {str(96 << 20), "30000"}
            await host.runtime.signal(place(), signal.SIGTERM)
            assert (await host.over()).code == 5

    run(story())


def test_a_restricted_container_in_a_namespace_writes_where_it_may(tmp_path: Path, service: PodmanService) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    script = """
        for to in /tmp /var/tmp /run /data / /home; do echo > $to/file 2>/dev/null && echo wrote $to; done
        grep CapBnd /proc/self/status; echo end > /dev/stdout; echo done
    """

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            mounts = (Mount(volume, "/data", read_only=False),)
            await host.runtime.start(shell(script, ids=IDS, restriction=Restriction(True, ("ALL",)), mounts=mounts))
            lines = [line for line in (await host.wrote("done")).splitlines() if "can't create" not in line]
            wrote = [f"wrote {path}" for path in ("/tmp", "/var/tmp", "/run", "/data")]
            assert lines == [*wrote, f"CapBnd:\t{'0' * 16}", "end", "done"]
        assert (volume / "file").stat().st_uid == 0

    run(story())


@pytest.mark.parametrize("user", [None, *(pytest.param(user, marks=pytest.mark.slow) for user in (APP, 0))])
def test_a_secret_is_readable_in_the_container_and_for_no_other_user_of_this_host(
    tmp_path: Path, service: PodmanService, user: int | None
) -> None:
    secrets = vault({"db": {"type": "dictionary", "data": {"password": "hunter2"}}})
    let_others_through(tmp_path)
    fields = {"image": APP_IMAGE, "volumes": [{"uri": "platform://secret/db", "path": "/etc/db"}]}
    files = Files(tmp_path / "state", secrets, memory=None)

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            owner = host.runtime.owner(wanted(user=user))
            assert owner.ids is not None
            container_files = files.provide(place(), -1, container_of(fields), owner)
            [mount] = container_files.mounts
            secret = mount.source / "password"
            assert (secret.stat().st_uid, stat.S_IMODE(secret.stat().st_mode)) == (0, 0o400), "before the start"
            start = shell(
                f"cat /etc/db/password; echo; {SLEEP}", image=APP_IMAGE, user=user, mounts=container_files.mounts
            )
            await host.runtime.start(msgspec.structs.replace(start, ids=owner.ids))
            assert await host.wrote("ready") == "hunter2\nready\n"
            inside = APP if user is None else user
            assert (secret.stat().st_uid, stat.S_IMODE(secret.stat().st_mode)) == (owner.ids.of(inside), 0o400)
            for folder in (mount.source, *mount.source.parents[:7]):
                folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
            readers = (owner.ids.of(inside), APP, 65534, owner.ids.of(inside + 1))
            assert [each for each in readers if can_read(secret, each)] == [owner.ids.of(inside)]

    run(story())


def test_a_volume_has_the_same_owners_inside_and_is_not_changed_for_it(tmp_path: Path, service: PodmanService) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    program, link = volume / "program", volume / "link"
    program.write_text("#!/bin/sh\n")
    os.chown(program, APP, 2000)
    program.chmod(0o4755)
    os.setxattr(program, "user.note", b"as it was")
    os.link(program, volume / "twin")
    link.symlink_to("/etc/shadow")
    os.lchown(link, 5, 6)
    before = [os.lstat(path).st_ctime_ns for path in (program, link)]
    script = "stat -c %u:%g:%a /data/program; stat -c %u:%g /data/link; touch /data/new && echo; chown 7:8 /data/new"

    async def story() -> None:
        root = tmp_path / "state"
        async with hosted(root, service) as host:
            mounts = (Mount(volume, "/data", read_only=False),)
            for replica, ids in (("a", IDS), ("b", IdRange(1_900_000_000)), ("c", None)):
                start = shell(f"{script}; {SLEEP}", at=place(replica), mounts=mounts, ids=ids)
                await host.runtime.start(start)
                lines = (await host.wrote("ready", place(replica))).splitlines()
                assert lines == ["1000:2000:4755", "5:6", "", "ready"], replica
                new = os.lstat(volume / "new")
                assert (new.st_uid, new.st_gid) == (7, 8)
                assert mounts_left(root) == []
        assert [os.lstat(path).st_ctime_ns for path in (program, link)] == before

    run(story())


def test_a_new_volume_belongs_to_the_user_of_the_image_and_to_the_group_of_the_manifest(
    tmp_path: Path, service: PodmanService
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o700)
    script = f"touch /data/file; id -G; stat -c %u:%g /data /data/file; {SLEEP}"

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            os.chown(volume, 0, 4000)
            volume.chmod(0o2770)
            mounts = (Mount(volume, "/data", read_only=False),)
            await host.runtime.start(shell(script, image=APP_IMAGE, group=4000, mounts=mounts, ids=IDS))
            lines = (await host.wrote("ready")).splitlines()
            assert lines == ["1000 4000", "1000:4000", "1000:4000", "ready"]
        assert (volume / "file").stat().st_uid == APP

    run(story())


@pytest.mark.slow
def test_a_volume_passes_between_containers_in_a_namespace_and_processes_of_this_host(
    tmp_path: Path, service: PodmanService
) -> None:
    root = tmp_path / "state"
    let_others_through(tmp_path)
    volume, spec = VolumeId(DATA, 0), VolumeSpec(1.0)
    store = VolumeStore(root, "directory", SystemClock(), Reserve(0, 0))

    async def story() -> None:
        async with hosted(root, service) as host:
            own = host.runtime.owner(wanted(user=APP, group=2000, writes_volumes=True))
            assert own.ids is not None
            path = store.attach(volume, spec, "container", own)
            mounts = (Mount(path, "/data", read_only=False),)
            script = f"cat /data/process 2> /dev/null; echo written > /data/container; id -G; {SLEEP}"
            start = shell(script, user=APP, group=2000, mounts=mounts, ids=own.ids)
            await host.runtime.start(start)
            assert (await host.wrote("ready")).splitlines() == ["1000 2000", "ready"]
            await host.runtime.remove(KEY, "r")
            store.detach(volume, "container")
            before = (path / "container").stat().st_ctime_ns
            assert store.attach(volume, spec, "process", Owner(APP, 2000)) == path
            assert can_read(path / "container", APP)
            (path / "process").write_text("from a process\n")
            os.chown(path / "process", APP, 2000)
            store.detach(volume, "process")
            store.attach(volume, spec, "container", own)
            assert (path / "container").stat().st_ctime_ns == before
            again = place("again")
            await host.runtime.start(msgspec.structs.replace(start, place=again))
            assert (await host.wrote("ready", again)).splitlines() == ["from a process", "1000 2000", "ready"]

    run(story())


@pytest.mark.slow
def test_what_an_older_version_started_goes_on_without_a_namespace_until_it_is_replaced(
    tmp_path: Path, service: PodmanService
) -> None:
    volume, secret = tmp_path / "volume", tmp_path / "payload"
    volume.mkdir()
    secret.write_text("hunter2\n")
    secret.chmod(0o400)
    mounts = (Mount(volume, "/data", read_only=False), Mount(secret, "/etc/sec"))
    script = f"cat /etc/sec; cat /data/word 2>/dev/null; echo kept > /data/word; {SLEEP}"
    side = place(container="side")

    async def story() -> None:
        async with hosted(tmp_path / "state", service, keep=True) as host:
            await host.runtime.start(shell(script, mounts=mounts, image=APP_IMAGE))
            await host.wrote("ready")
            before = host.tracked(place()).program
        async with hosted(tmp_path / "state", service) as host:
            assert (await host.running()).alive
            assert host.tracked(place()).program == before
            assert host.tracked(place(container="")).labelled.ids is None
            await host.runtime.start(shell(script, at=side, mounts=mounts, image=APP_IMAGE, ids=IDS))
            await host.wrote("ready", side)
            assert host.output(side).splitlines() == ["hunter2", "kept", "ready"]
            assert users(host.tracked(side).program.pid)[0] == APP, "it joins its replica"
            fresh = place("new")
            await host.runtime.start(shell(script, at=fresh, mounts=mounts, image=APP_IMAGE, ids=IDS))
            await host.wrote("ready", fresh)
            assert host.output(fresh).splitlines() == ["hunter2", "kept", "ready"]
            assert users(host.tracked(fresh).program.pid)[0] == IDS.of(APP)

    run(story())


def test_the_next_daemon_adopts_a_replica_in_its_namespace_whatever_the_settings_are(
    tmp_path: Path, service: PodmanService
) -> None:
    side = place(container="side")

    async def story() -> None:
        async with hosted(tmp_path / "state", service, keep=True) as host:
            await host.runtime.start(shell(SLEEP, ids=IDS))
            before = host.tracked(place()).program
        async with hosted(tmp_path / "state", service) as host:
            assert (host.tracked(place()).program, host.ended) == (before, [])
            assert host.tracked(place(container="")).labelled.ids == IDS
            await host.runtime.start(shell(SLEEP, at=side, ids=None))
            await host.wrote("ready", side)
            assert users(host.tracked(side).program.pid)[0] == IDS.first
            assert (await host.runtime.exec(place(), ["id", "-u"], 10)).output == "0\n"

    run(story())


DIES = """
import os, sys
from pathlib import Path
from reconciler.engines.host.runtimes.podman.users.mapped_mounts import map_mounts
from reconciler.engines.host.runtimes.protocol import Mount
volumes = tuple(Mount(Path(path), path, read_only=False) for path in sys.argv[3:])
with map_mounts(volumes, Path(sys.argv[1]), int(sys.argv[2])) as mounts:
    assert all(each.source.stat() for each in mounts)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_daemon_that_is_killed_while_a_container_starts_leaves_mounts_that_the_next_one_ends(
    tmp_path: Path, service: PodmanService
) -> None:
    volume, file, root = tmp_path / "volume", tmp_path / "file", tmp_path / "state"
    (volume / "folder").mkdir(parents=True)
    (volume / "folder/data").write_text("precious")
    file.write_text("precious too")

    async def story() -> None:
        async with hosted(root, service, keep=True) as host:
            await host.runtime.start(shell(SLEEP, ids=IDS))
            process = str(host.tracked(place(container="")).program.pid)
        words = [sys.executable, "-c", DIES, str(root / "mapped-volumes"), process, str(volume), str(file)]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
        assert sum(" - " in line for line in mounts_left(root)) == 2
        async with hosted(root, service):
            assert mounts_left(root) == []
        assert (volume / "folder/data").read_text() == "precious"
        assert file.read_text() == "precious too"

    run(story())


@pytest.mark.slow
def test_a_start_that_fails_leaves_no_mount_and_no_container(tmp_path: Path, service: PodmanService) -> None:
    volume, root = tmp_path / "volume", tmp_path / "state"
    volume.mkdir()
    mounts = (Mount(volume, "/data", read_only=False),)
    service.load(busybox_image(FAR_IMAGE, user="70000"))

    async def story() -> None:
        async with hosted(root, service) as host:
            with pytest.raises(EngineError, match="nosuch") as raised:
                await host.runtime.start(launch(command="nosuch", mounts=mounts, ids=IDS))
            assert raised.value.reason is Reason.PROGRAM_NOT_FOUND
            assert mounts_left(root) == []
            with pytest.raises(EngineError, match=r"name shop/api in podman\.userNamespaces\.hostUsers") as raised:
                await host.runtime.start(shell(SLEEP, image=FAR_IMAGE, mounts=mounts, ids=IDS))
            assert (raised.value.reason, raised.value.retry) == (Reason.USER_NOT_FOUND, False)
            assert mounts_left(root) == []
            gone = (Mount(tmp_path / "gone", "/data", read_only=False),)
            with pytest.raises(EngineError, match="cannot be mounted for its users"):
                await host.runtime.start(shell(SLEEP, mounts=gone, ids=IDS))
            assert mounts_left(root) == []
            far = place("far")
            await host.runtime.start(shell(f"id -u; {SLEEP}", at=far, image=FAR_IMAGE, mounts=mounts))
            assert await host.wrote("ready", far) == "70000\nready\n"

    run(story())


CONFINED = """
import asyncio, sys
from pathlib import Path
from reconciler.engines.host.runtimes.protocol import Mount
from tests.engines.host.runtimes.podman.kit import opened, shell
from tests.engines.host.runtimes.podman.test_plugin import wanted

async def story(root, socket, *volumes):
    async with opened(root, socket) as host:
        spec = wanted(writes_volumes=bool(volumes))
        print(*(each for each in host.runtime.limitations(wanted(writes_volumes=True)) if "user namespace" in each))
        assert not [each for each in host.runtime.limitations(wanted()) if "user namespace" in each]
        ids = host.runtime.owner(spec).ids
        mounts = tuple(Mount(each, "/data", read_only=False) for each in volumes)
        script = "cat /proc/self/uid_map; stat -c %u:%g /data/file; touch /data/new; echo end > /dev/stdout; sleep 1000"
        await host.runtime.start(shell(script, mounts=mounts, ids=ids))
        print(*(await host.wrote("end")).split()[:5])
        print(0, ids.first, ids.count, *(["5:6", "end"] if volumes else []))

asyncio.run(story(*map(Path, sys.argv[1:])))
"""


def confined(script: str, root: Path, service: PodmanService, *volumes: Path) -> list[str]:
    """What a daemon prints that has a mount namespace of its own, in which ``script`` ran before."""
    root.mkdir(exist_ok=True)
    OWNERS.append(labels_of(root, "here").owner)
    words = [*OWN_MOUNTS, "sh", "-c", f'{script} && exec "$@"', "sh", sys.executable, "-c", CONFINED]
    words += [str(root), str(service.socket), *map(str, volumes)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60.0)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_daemon_with_mounts_of_its_own_mounts_volumes_where_podman_sees_them(
    tmp_path: Path, service: PodmanService
) -> None:
    root, volume = tmp_path / "state", tmp_path / "volume"
    volume.mkdir()
    (volume / "file").touch()
    os.chown(volume / "file", 5, 6)
    sentence, seen, known = confined("true", root, service, volume)
    assert (sentence, seen) == ("", known)
    assert (volume / "new").stat().st_uid == 0
    assert mounts_left(root) == []


@pytest.mark.slow
def test_a_daemon_whose_directory_podman_does_not_see_gives_a_namespace_only_to_containers_without_volumes(
    tmp_path: Path, service: PodmanService
) -> None:
    root = tmp_path / "state"
    root.mkdir()
    inner = root / "here"
    hides = f"mount -t tmpfs t {root} && mkdir {inner}"
    inner.mkdir()
    found = confined("true", inner, service)
    assert found[0] == ""
    capable = [sys.executable, "-c", SEES, str(inner), str(service.socket)]
    done = subprocess.run(
        [*OWN_MOUNTS, "sh", "-c", f'{hides} && exec "$@"', "sh", *capable], capture_output=True, text=True, check=True
    )
    assert done.stdout == "this daemon cannot mount them where Podman sees them\n"


SEES = """
import sys
from pathlib import Path
from reconciler.engines.host.runtimes.podman.capabilities import find_other_mounts
from reconciler.engines.host.runtimes.podman.users.mapped_mounts import lacks_for_mapped_mounts
root, socket = map(Path, sys.argv[1:])
process = find_other_mounts(socket)
assert process > 0
print(lacks_for_mapped_mounts(root, process))
"""


@pytest.mark.slow
def test_user_1337_has_no_network_in_a_namespace(tmp_path: Path, service: PodmanService) -> None:
    ports = free_ports([8080], (), spread="blocked")
    service.load(busybox_image(BLOCKED_IMAGE, user="blocked"))
    serve = f"httpd -p 8080 -h /etc; {SLEEP}"

    async def story() -> None:
        async with hosted(tmp_path / "state", service) as host:
            await host.runtime.start(shell(serve, image=BLOCKED_IMAGE, replica_ports=ports, ids=IDS))
            await host.wrote("ready")
            with pytest.raises(OSError, match="timed out"):
                await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{ports[8080]}/passwd", timeout=1)
            alone = place("alone")
            await host.runtime.start(shell(f"ls /sys/class/net; id -u; {SLEEP}", at=alone, user=1337, ids=IDS))
            assert (await host.wrote("ready", alone)).splitlines() == ["lo", "1337", "ready"]

    run(story())


WRITES = "cat /data/word >> /data/found; echo $WORD > /data/word; sleep 1000"


class DatabaseHarness:
    """A location over the real Podman, with the database ``db`` on the directory of a volume."""

    def __init__(self, path: Path, service: PodmanService) -> None:
        self.executor = ExecutorHarness(path, SystemClock())
        self.runtime = PodmanRuntime(path / "here", "here", SystemClock(), service.socket)
        self.volume = path / "here/volumes/shop/data/0"
        host = HostSettings(termination_scale=0.0, volumes="directory", disk_reserve=0.0)
        places = {"here": LocationSettings("host", runtime="podman", dataplane="builtin")}
        self._settings = Settings("acme", (), path, locations=places, host=host)
        self._path = path

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[HostEngine]:
        """One life of a daemon; containers go on after it."""
        self.runtime = PodmanRuntime(self._path / "here", "here", SystemClock(), self.runtime._socket)
        context = EngineContext(
            LocationRecords(self.executor.records, "here"), self._settings, SystemClock(), vault({})
        )
        engine = HostEngine(context, self._path / "here", self.runtime)
        self.executor.engines["here"] = engine
        engine.begin_schedules()
        await engine.open()
        try:
            yield engine
        finally:
            await engine.close()

    async def apply(self, version: int, word: str) -> None:
        """Apply the volume set and the database, which writes ``word``."""
        whole = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"}
        volumes = {"kind": "volumeset", "name": "data", "spec": whole}
        container = {"name": "main", "image": IMAGE, "command": "/bin/sh", "args": ["-c", WRITES]}
        container["env"] = [{"name": "WORD", "value": word}]
        container["volumes"] = [{"uri": "platform://volumeset/data", "path": "/data"}]
        scale = {"metric": "disabled", "minScale": 1, "maxScale": 1}
        spec = {"type": "stateful", "containers": [container], "defaultOptions": {"autoscaling": scale}}
        database = {"kind": "workload", "name": "db", "spec": spec}
        steps = [step(str(DATA), body=volumes, engine="host")] if version == 1 else []
        action = Action.CREATE if version == 1 else Action.UPDATE
        steps.append(step(str(DB), action=action, version=version, body=database, engine="host"))
        assert set(ends(await self.executor.run(plan(*steps))).values()) == {"applied"}

    def content(self, name: str) -> str:
        """A file in the volume; "" without one."""
        path = self.volume / name
        return path.read_text() if path.exists() else ""

    async def process(self) -> tuple[int, float]:
        """The process of the database on this host, and the user that it has there."""
        assert self.runtime._open is not None
        while not (found := [each for each in await self.runtime.list() if each.alive]):
            await asyncio.sleep(0.02)
        [running] = found
        tracked = self.runtime._open.containers.get(running.place)
        assert tracked is not None
        return tracked.program.pid, users(tracked.program.pid)[0]


@pytest.mark.slow
def test_a_database_goes_on_after_an_upgrade_and_gets_a_namespace_at_its_next_version(
    tmp_path: Path, service: PodmanService, monkeypatch: pytest.MonkeyPatch
) -> None:
    OWNERS.append(labels_of(tmp_path / "here", "here").owner)
    first = id_range(OWNERS[-1], None).first
    database = DatabaseHarness(tmp_path, service)

    async def command(engine: HostEngine, name: str, number: int) -> None:
        asked = {"location": "here", "volumeIndex": 0, "snapshotName": "one"}
        await engine.command(DATA, name, asked, f"c{number}")

    async def story() -> None:
        with monkeypatch.context() as older:
            older.setattr(podman_runtime, "has_namespace", lambda spec, known: False)
            async with database.daemon():
                await database.apply(1, "one")
                await until(lambda: database.content("word") == "one\n", "the first version writes")
                before = await database.process()
                assert before[1] == 0
        async with database.daemon() as engine:
            await asyncio.sleep(0.5)  # a difference would have replaced it by then
            assert await database.process() == before, "nothing restarts at the upgrade"
            await database.apply(2, "two")
            await until(lambda: database.content("word") == "two\n", "the second version writes")
            assert database.content("found") == "one\n"
            assert (await database.process())[1] == first
            assert (database.volume / "word").stat().st_uid == (database.volume / "found").stat().st_uid == 0
            await command(engine, "createVolumeSnapshot", 1)
            await until(lambda: database.content("found") == "one\ntwo\n", "it starts again after the snapshot")
            (database.volume / "late").write_text("after the snapshot")
            await command(engine, "restoreVolume", 2)
            await until(lambda: database.content("found") == "one\ntwo\n", "it starts with what the snapshot has")
            assert database.content("late") == ""
            await until(lambda: database.content("word") == "two\n", "it writes")
            started = await database.process()
            assert started[1] == first
        async with database.daemon() as engine:
            await asyncio.sleep(0.5)
            assert await database.process() == started, "nor does the next daemon restart it"
            for _ in range(200):
                gone = await database.executor.run(plan(step(str(DB), action=Action.DELETE, engine="host")))
                if set(ends(gone).values()) == {"applied"}:
                    break
                await asyncio.sleep(0.05)
            await database.runtime.prune(())
        assert mounts_left(tmp_path / "here") == []
        database.executor.records.close()

    run(story())
