"""A daemon that is killed amid rollouts, hooks and ends: in the end the same runs as with an undisturbed one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.crash.daemon_on_host import POINTS
from tests.crash.harness import Kill
from tests.support.host_sandbox import HostSandbox, host_sandbox, served, shared_folder
from tests.support.sandbox import eventually

wait = partial(eventually, patience=90.0)

ONCE = """
import fcntl, os, sys
data = os.environ["RECONCILER_VOLUMES"] + "/data/"
lock = open(data + "lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(data + "twice", "w").close()
    sys.exit(9)
import http.server
http.server.HTTPServer(("", int(os.environ["PORT"])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
"""Serves, and leaves a mark on its volume where another one has it open already."""

VOLUMES = "kind: volumeset\nname: data\ngvc: shop\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
DEAF = {"command": "sh", "args": ["-c", "trap '' TERM; exec sleep 1000"]}
NAMES = ("web", "db", "deaf")
PLAIN = {"ports": None, "readinessProbe": None}


def web(version: int, replicas: int = 2) -> str:
    """A workload each replica of which writes down that its hooks run."""
    mark = ["echo $HOSTNAME {} >> $RECONCILER_ENDPOINTS/../../../../../shared/marks", "sleep 0.2"]
    hooks = {
        name: {"exec": {"command": ["sh", "-c", "; ".join(mark).format(name)]}} for name in ("postStart", "preStop")
    }
    return served(replicas=replicas, env={"GREETING": f"version {version}"}, lifecycle=hooks)


def database(version: int) -> str:
    """A stateful workload whose replicas are never there twice."""
    volumes = [{"uri": "platform://volumeset/data", "path": "/data"}]
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    manifest = served("db", args=["-c", ONCE], env={"VERSION": str(version)}, volumes=volumes, readinessProbe=probe)
    return manifest.replace('"type": "standard"', '"type": "stateful"')


PHASES: Sequence[Mapping[str, str | None]] = (
    {
        "shop/volumes.yaml": VOLUMES,
        "shop/web.yaml": web(1),
        "shop/db.yaml": database(1),
        "shop/deaf.yaml": served("deaf", **DEAF, **PLAIN),
    },
    {"shop/web.yaml": web(2), "shop/db.yaml": database(2)},
    {"shop/web.yaml": web(3, replicas=3), "shop/db.yaml": database(3), "shop/deaf.yaml": None},
)
"""Commits, one after another: all is made; all is replaced; some is scaled, some replaced, some deleted."""


ENDINGS: Sequence[Mapping[str, tuple[int, int]]] = (
    {"web": (1, 2), "db": (1, 2), "deaf": (1, 2)},
    {"web": (2, 2), "db": (2, 2), "deaf": (1, 2)},
    {"web": (3, 3), "db": (3, 2)},
)
"""Of each workload the version and the number of replicas, once the commit is carried out."""


def go_through(sandbox: HostSandbox, kills: Sequence[Sequence[Kill]]) -> Counter[str]:
    """Commit, let daemons die, let one finish, and check the outcome; returns the points at which they died."""
    died: Counter[str] = Counter()
    for files, deaths, ending in zip(PHASES, kills, ENDINGS, strict=True):
        sandbox.repo.commit(files)
        for kill in deaths:
            died[kill.point.partition(":")[0]] += let_die(sandbox, kill, ending)
        with sandbox.daemon() as daemon:
            wait(lambda wanted=ending: converged(sandbox, wanted), "all is as wanted")
            assert daemon.stop() == 0
        examine(sandbox, ending)
    return died


def let_die(sandbox: HostSandbox, kill: Kill, ending: Mapping[str, tuple[int, int]]) -> bool:
    """Run a daemon until ``kill`` ends it, or until it has nothing left to do; whether it died by itself."""
    with sandbox.daemon("-m", "tests.crash.daemon_on_host", kill.point) as daemon:
        if not kill.point:
            time.sleep(kill.after)
            return False
        wait(lambda: daemon.process.poll() is not None or converged(sandbox, ending), "it dies or ends its work")
        return daemon.process.poll() is not None


def converged(sandbox: HostSandbox, ending: Mapping[str, tuple[int, int]]) -> bool:
    """Whether everything is recorded, and runs, as it shall in the end."""
    records = {key: record for key, record in sandbox.recorded().items() if key.startswith("workload/")}
    if {record.key.name: record.version for record in records.values()} != {
        name: pair[0] for name, pair in ending.items()
    }:
        return False
    replicas = [replica for name in NAMES for replica in sandbox.replicas(name).values()]
    count = Counter(
        replica.key.name for replica in replicas if replica.ready and replica.version == ending[replica.key.name][0]
    )
    wanted = {name: number for name, (_, number) in ending.items()}
    return count == wanted and len(replicas) == count.total() and all(sandbox.healthy(key) for key in records)


def examine(sandbox: HostSandbox, ending: Mapping[str, tuple[int, int]]) -> None:
    """Check that what runs is what is recorded, nothing started twice or anew, and nothing else is left."""
    with sandbox.records() as records:
        assert records.journal.open() == []
    replicas = [replica for name in NAMES for replica in sandbox.replicas(name).values()]
    # Shows when and how the last one ended.
    assert [(replica.name, one) for replica in replicas for one in replica.containers if one.restarts] == []
    assert {replica.name for replica in replicas if replica.index >= 0} == {"db-0", "db-1"}
    programs = [command for command in sandbox.programs().values() if command != "sleep 0.2 "]
    assert len(programs) == len(replicas)
    names = {f"{replica.key.name}/{replica.name}" for replica in replicas}
    root = sandbox.state / "host" / "here"
    for folder in ("run", "scratch"):
        assert {f"{path.parent.name}/{path.name}" for path in (root / folder / "shop").glob("*/*")} <= names
    assert {path.stem for path in (root / "endpoints" / "shop").iterdir()} == {*ending}
    assert len(sandbox.ready("web")) == ending["web"][1]
    assert sandbox.greetings("web") == {f"version {ending['web'][0]}"}
    assert not list((root / "volumes").rglob("twice"))
    hooks = Counter((shared_folder(sandbox.path) / "marks").read_text().splitlines())
    assert [hook for hook, times in hooks.items() if times > 1] == []


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[HostSandbox]:
    """One with nothing committed."""
    with host_sandbox(tmp_path, {}, prune={"percent": 100}, host={"terminationScale": 0.01}) as sandbox:
        shared_folder(tmp_path)
        yield sandbox


EXACT = (
    (Kill("start:2"), Kill("committed:12")),
    (Kill("saved:2"), Kill("signal:1"), Kill("hook:1")),
    (Kill("forget:1"),),
)


@pytest.mark.slow
def test_kills_amid_rollouts_change_nothing_about_the_end(sandbox: HostSandbox) -> None:
    assert go_through(sandbox, EXACT).total() >= 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_kills_at_any_moment_change_nothing_about_the_end(sandbox: HostSandbox, seed: int) -> None:
    chance = random.Random(seed)

    def kill() -> Kill:
        if chance.random() < 0.3:
            return Kill(after=chance.uniform(0, 2))
        return Kill(f"{chance.choice(POINTS)}:{chance.randint(1, 12)}")

    go_through(sandbox, [[kill() for _ in range(4)] for _ in PHASES])
