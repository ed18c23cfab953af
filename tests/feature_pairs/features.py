"""The features that meet, each as what a person or the host does: it begins before ``yield``, and is undone after."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from reconciler.engines.images.tags import SHARED_SECONDS
from tests.engines.host.dataplane.load.images import ProgramImages
from tests.engines.host.dataplane.load.traffic import Socket, Tally
from tests.feature_pairs.harness import PATIENCE, Feature, FeatureHarness, database, quiet
from tests.soak.manifests import SECRET
from tests.support.host_sandbox import fetch
from tests.support.sandbox import eventually

DAY = 86_400


def roll_out(harness: FeatureHarness) -> Iterator[None]:
    """Another version of the workload that gets requests."""
    harness.commit({"shop/web.yaml": harness.web()})
    yield


def reload_proxy(harness: FeatureHarness) -> Iterator[None]:
    """A workload more, which costs a reload; and one less, which costs another."""
    name = f"more-{harness.count()}"
    harness.workloads[name] = 1
    harness.commit({f"shop/{name}.yaml": quiet(name)})
    yield
    harness.address(name)
    del harness.workloads[name]
    harness.commit({f"shop/{name}.yaml": None})


def wake_from_zero(harness: FeatureHarness) -> Iterator[None]:
    """A request for a workload without replicas; it goes back to zero by itself."""
    yield
    fetch(harness.address("cold"), patience=60)


def hold_requests(harness: FeatureHarness) -> Iterator[None]:
    """The requests of the busy workload wait until the other feature is through."""
    harness.run("hold", "workload/shop/web", "--for", "10s")
    yield
    harness.sandbox.run("hold", "workload/shop/web", "--release")  # it may be over by now


def open_connection(harness: FeatureHarness) -> Iterator[None]:
    """A connection that was opened before, and is used after."""
    loop = asyncio.new_event_loop()
    socket, tally = Socket(harness.address("web")), Tally("an open WebSocket")
    try:
        loop.run_until_complete(socket.ask(tally))
        yield
        loop.run_until_complete(socket.ask(tally))
        assert not tally.lost, tally.lost
    finally:
        socket.close()
        loop.close()


def suspend(harness: FeatureHarness) -> Iterator[None]:
    """A workload that an operator suspends."""
    harness.run("suspend", "workload/shop/side")
    yield
    harness.run("resume", "workload/shop/side")


def rename(harness: FeatureHarness) -> Iterator[None]:
    """A workload that gets another name, and its own again."""
    yield from _replaced(harness, "named", "renamed")


def delete_and_create(harness: FeatureHarness) -> Iterator[None]:
    """A workload whose name is used again."""
    del harness.workloads["gone"]
    harness.commit({"shop/gone.yaml": None})
    yield
    eventually(lambda: "gone" not in harness.recorded(), "it is deleted")
    harness.workloads["gone"] = 1
    harness.commit({"shop/gone.yaml": quiet("gone")})


def hand_over_volume(harness: FeatureHarness) -> Iterator[None]:
    """The volume goes to another workload, and back."""
    other = "db-2" if "db" in harness.workloads else "db"
    former = "db" if other == "db-2" else "db-2"
    harness.workloads = {**{name: count for name, count in harness.workloads.items() if name != former}, other: 1}
    harness.commit({f"shop/{former}.yaml": None, f"shop/{other}.yaml": database(other)})
    yield


NO_ROOM = "failed: HostDiskLow"
GOES_ON = "the daemon ended before the command did; it goes on with it when it runs again"


def take_snapshot(harness: FeatureHarness) -> Iterator[None]:
    """A snapshot of the volume in use."""
    name = f"s{harness.count()}"
    fields = (f"snapshotName={name}", "volumeIndex=0", "location=here")
    with ThreadPoolExecutor(1) as threads:
        command = ("command", "volumeset/shop/data", "createVolumeSnapshot", *fields, "--timeout", "60")
        asked = threads.submit(harness.sandbox.run, *command)
        try:
            yield
        finally:
            done = asked.result()
    if NO_ROOM in done.stdout:
        # The disk was full before it began, which the command says; there is no part of it.
        assert name not in harness.run("snapshots", "volumeset/shop/data")
        return
    # Where its daemon was killed, the command says that the next one goes on with it.
    assert done.returncode == 0 or GOES_ON in done.stderr, done.stdout + done.stderr
    # Where no daemon runs, the command waits for one, and nobody for the command.
    eventually(lambda: name in harness.run("snapshots", "volumeset/shop/data"), f"the snapshot {name} is taken")
    harness.snapshots.add(name)


def run_cron(harness: FeatureHarness) -> Iterator[None]:
    """An execution on demand."""
    harness.run("command", "workload/shop/tick", "runCronWorkload", "location=here", "--no-wait")
    yield


def kill_daemon(harness: FeatureHarness) -> Iterator[None]:
    """The daemon is killed, and there is none for a moment."""
    harness.kill()
    yield
    harness.start()


def jump_clock(harness: FeatureHarness) -> Iterator[None]:
    """The clock is 400 days ahead for a moment."""
    harness.set_clock(400 * DAY)
    time.sleep(1.5)
    yield
    harness.set_clock(0)


def fill_disk(harness: FeatureHarness) -> Iterator[None]:
    """No byte is left."""
    filler = harness.sandbox.state / "filler"
    with contextlib.suppress(OSError), filler.open("wb") as out:
        while True:
            out.write(bytes(1 << 16))
            out.flush()
    try:
        time.sleep(0.5)
        yield
    finally:
        filler.unlink()


def rotate_secret(harness: FeatureHarness) -> Iterator[None]:
    """Another value of the secret of the busy workload."""
    harness.commit({"secret.yaml": SECRET.replace("first", f"value-{harness.count()}")})
    yield


def change_image(harness: FeatureHarness) -> Iterator[None]:
    """Another image, which is being pulled until the other feature is through."""
    images = _images(harness)
    images.slow_down()
    harness.push(f"{harness.count()}")
    harness.commit({"shop/web.yaml": harness.web()})
    digest = harness.digest
    eventually(lambda: images.is_pulled(digest), "the new image is being pulled")
    yield
    images.speed_up()


def move_tag(harness: FeatureHarness) -> Iterator[None]:
    """Another image by the same tag, without a commit: another workload has the registry asked for it."""
    name = f"follower-{harness.count()}"
    harness.push(harness.tag)
    time.sleep(SHARED_SECONDS)  # the last answer of the registry counts for so long
    harness.workloads[name] = 1
    harness.commit({f"shop/{name}.yaml": harness.web(name, replicas=1)})
    yield
    _images(harness).speed_up()
    eventually(harness.has_newest_image, "web follows its tag", PATIENCE)
    del harness.workloads[name]
    harness.commit({f"shop/{name}.yaml": None})


def fail_pull(harness: FeatureHarness) -> Iterator[None]:
    """A version whose image is not there, until there is another one."""
    right, harness.tag = harness.tag, "missing"
    harness.commit({"shop/web.yaml": harness.web()})
    harness.tag = right
    eventually(lambda: "ImagePullFailed" in harness.sandbox.message(), "the status says that the image is not there")
    yield
    harness.commit({"shop/web.yaml": harness.web()})


def _images(harness: FeatureHarness) -> ProgramImages:
    assert harness.containers is not None
    return harness.containers.images


def _replaced(harness: FeatureHarness, name: str, other: str) -> Iterator[None]:
    for former, new in ((name, other), (other, name)):
        del harness.workloads[former]
        harness.workloads[new] = 1
        harness.commit({f"shop/{former}.yaml": None, f"shop/{new}.yaml": quiet(new)})
        if former == name:
            yield
            eventually(lambda: other in harness.recorded(), "it is renamed")


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
