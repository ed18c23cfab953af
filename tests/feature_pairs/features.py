"""The features that meet, each as what a person or the host does: it begins before ``yield``, and is undone after."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from reconciler.engines.host.images.tags import SHARED_SECONDS
from tests.engines.host.dataplane.load.images import ProgramImages
from tests.engines.host.dataplane.load.traffic import Socket, Tally
from tests.feature_pairs.harness import PATIENCE, Feature, World, database, quiet
from tests.soak.manifests import SECRET
from tests.support.host_sandbox import fetch
from tests.support.sandbox import eventually

DAY = 86_400


def roll_out(world: World) -> Iterator[None]:
    """Another version of the workload that gets requests."""
    world.commit({"shop/web.yaml": world.web()})
    yield


def reload_proxy(world: World) -> Iterator[None]:
    """A workload more, which costs a reload; and one less, which costs another."""
    name = f"more-{world.count()}"
    world.workloads[name] = 1
    world.commit({f"shop/{name}.yaml": quiet(name)})
    yield
    world.address(name)
    del world.workloads[name]
    world.commit({f"shop/{name}.yaml": None})


def wake_from_zero(world: World) -> Iterator[None]:
    """A request for a workload without replicas; it goes back to zero by itself."""
    yield
    fetch(world.address("cold"), patience=60)


def hold_requests(world: World) -> Iterator[None]:
    """The requests of the busy workload wait until the other feature is through."""
    world.run("hold", "workload/shop/web", "--for", "10s")
    yield
    world.site.run("hold", "workload/shop/web", "--release")  # it may be over by now


def open_connection(world: World) -> Iterator[None]:
    """A connection that was opened before, and is used after."""
    loop = asyncio.new_event_loop()
    socket, tally = Socket(world.address("web")), Tally("an open WebSocket")
    try:
        loop.run_until_complete(socket.ask(tally))
        yield
        loop.run_until_complete(socket.ask(tally))
        assert not tally.lost, tally.lost
    finally:
        socket.close()
        loop.close()


def suspend(world: World) -> Iterator[None]:
    """A workload that an operator suspends."""
    world.run("suspend", "workload/shop/side")
    yield
    world.run("resume", "workload/shop/side")


def rename(world: World) -> Iterator[None]:
    """A workload that gets another name, and its own again."""
    yield from _replaced(world, "named", "renamed")


def delete_and_create(world: World) -> Iterator[None]:
    """A workload whose name is used again."""
    del world.workloads["gone"]
    world.commit({"shop/gone.yaml": None})
    yield
    eventually(lambda: "gone" not in world.recorded(), "it is deleted")
    world.workloads["gone"] = 1
    world.commit({"shop/gone.yaml": quiet("gone")})


def hand_over_volume(world: World) -> Iterator[None]:
    """The volume goes to another workload, and back."""
    other = "db-2" if "db" in world.workloads else "db"
    former = "db" if other == "db-2" else "db-2"
    world.workloads = {**{name: count for name, count in world.workloads.items() if name != former}, other: 1}
    world.commit({f"shop/{former}.yaml": None, f"shop/{other}.yaml": database(other)})
    yield


NO_ROOM = "failed: HostDiskLow"
GOES_ON = "the daemon ended before the command did; it goes on with it when it runs again"


def take_snapshot(world: World) -> Iterator[None]:
    """A snapshot of the volume in use."""
    name = f"s{world.count()}"
    fields = (f"snapshotName={name}", "volumeIndex=0", "location=here")
    with ThreadPoolExecutor(1) as threads:
        command = ("command", "volumeset/shop/data", "createVolumeSnapshot", *fields, "--timeout", "60")
        asked = threads.submit(world.site.run, *command)
        try:
            yield
        finally:
            done = asked.result()
    if NO_ROOM in done.stdout:
        # The disk was full before it began, which the command says; there is no part of it.
        assert name not in world.run("snapshots", "volumeset/shop/data")
        return
    # Where its daemon was killed, the command says that the next one goes on with it.
    assert done.returncode == 0 or GOES_ON in done.stderr, done.stdout + done.stderr
    # Where no daemon runs, the command waits for one, and nobody for the command.
    eventually(lambda: name in world.run("snapshots", "volumeset/shop/data"), f"the snapshot {name} is taken")
    world.snapshots.add(name)


def run_cron(world: World) -> Iterator[None]:
    """An execution on demand."""
    world.run("command", "workload/shop/tick", "runCronWorkload", "location=here", "--no-wait")
    yield


def kill_daemon(world: World) -> Iterator[None]:
    """The daemon is killed, and there is none for a moment."""
    world.kill()
    yield
    world.start()


def jump_clock(world: World) -> Iterator[None]:
    """The clock is 400 days ahead for a moment."""
    world.set_clock(400 * DAY)
    time.sleep(1.5)
    yield
    world.set_clock(0)


def fill_disk(world: World) -> Iterator[None]:
    """No byte is left."""
    filler = world.site.state / "filler"
    with contextlib.suppress(OSError), filler.open("wb") as out:
        while True:
            out.write(bytes(1 << 16))
            out.flush()
    try:
        time.sleep(0.5)
        yield
    finally:
        filler.unlink()


def rotate_secret(world: World) -> Iterator[None]:
    """Another value of the secret of the busy workload."""
    world.commit({"secret.yaml": SECRET.replace("first", f"value-{world.count()}")})
    yield


def change_image(world: World) -> Iterator[None]:
    """Another image, which is being pulled until the other feature is through."""
    images = _images(world)
    images.slow_down()
    world.push(f"{world.count()}")
    world.commit({"shop/web.yaml": world.web()})
    digest = world.digest
    eventually(lambda: images.is_pulled(digest), "the new image is being pulled")
    yield
    images.speed_up()


def move_tag(world: World) -> Iterator[None]:
    """Another image by the same tag, without a commit: another workload has the registry asked for it."""
    name = f"follower-{world.count()}"
    world.push(world.tag)
    time.sleep(SHARED_SECONDS)  # the last answer of the registry counts for so long
    world.workloads[name] = 1
    world.commit({f"shop/{name}.yaml": world.web(name, replicas=1)})
    yield
    _images(world).speed_up()
    eventually(world.has_newest_image, "web follows its tag", PATIENCE)
    del world.workloads[name]
    world.commit({f"shop/{name}.yaml": None})


def fail_pull(world: World) -> Iterator[None]:
    """A version whose image is not there, until there is another one."""
    right, world.tag = world.tag, "missing"
    world.commit({"shop/web.yaml": world.web()})
    world.tag = right
    eventually(lambda: "ImagePullFailed" in world.site.message(), "the status says that the image is not there")
    yield
    world.commit({"shop/web.yaml": world.web()})


def _images(world: World) -> ProgramImages:
    assert world.containers is not None
    return world.containers.images


def _replaced(world: World, name: str, other: str) -> Iterator[None]:
    for former, new in ((name, other), (other, name)):
        del world.workloads[former]
        world.workloads[new] = 1
        world.commit({f"shop/{former}.yaml": None, f"shop/{new}.yaml": quiet(new)})
        if former == name:
            yield
            eventually(lambda: other in world.recorded(), "it is renamed")


FEATURES: dict[str, Feature] = {
    "rollout": roll_out,
    "reload of the proxy": reload_proxy,
    "scale from zero": wake_from_zero,
    "hold": hold_requests,
    "open connection": open_connection,
    "suspend": suspend,
    "rename": rename,
    "delete and create again": delete_and_create,
    "hand-over of a volume": hand_over_volume,
    "snapshot": take_snapshot,
    "cron run": run_cron,
    "daemon killed": kill_daemon,
    "clock jump": jump_clock,
    "full disk": fill_disk,
    "secret rotation": rotate_secret,
}
IMAGE_FEATURES: dict[str, Feature] = {
    "image change": change_image,
    "moved tag": move_tag,
    "failed pull": fail_pull,
}
"""Those that need images, and so Podman."""
NOT_TWICE = frozenset({"suspend", "rename", "delete and create again", "daemon killed", "clock jump", "full disk"})
"""What cannot begin again before it has ended."""
NEEDS_DAEMON = frozenset({"hold", "suspend", "snapshot", "cron run", *IMAGE_FEATURES})
"""Commands and pulls that wait for a daemon; they begin before it is killed."""
