"""How the programs of a version behave, for simulations: by name, so that a schedule in a file can refer to it."""

from __future__ import annotations

import math

import msgspec

from reconciler.engines.workload.spec import ContainerSpec
from reconciler.model.kinds.workload import Command, Probe

NEVER = math.inf
POST_START = Command(("greet",))
PRE_STOP = Command(("wait",))
PROBE = Probe(exec=Command(("true",)))


class Behaviour(msgspec.Struct, frozen=True):
    """Seconds, NEVER for what does not come.

    ``ready`` after the start (None: it has no readiness probe), ``unready`` after the start its probe first fails,
    ``lives`` until it ends by itself, ``dead`` until its liveness probe has failed, ``obeys`` from SIGTERM to its end,
    ``post_start`` and ``pre_stop`` how long the hooks take (None: it has none).
    """

    ready: float | None = 1.0
    unready: float = NEVER
    lives: float = NEVER
    dead: float = NEVER
    obeys: float = 0.5
    starts: bool = True
    post_start: float | None = None
    pre_stop: float | None = None
    containers: tuple[str, ...] = ("main",)


BEHAVIOURS = {
    "good": Behaviour(),
    "plain": Behaviour(ready=None),
    "slow": Behaviour(ready=40.0),
    "paired": Behaviour(containers=("main", "side")),
    "greeting": Behaviour(post_start=7.0),
    "hooked": Behaviour(pre_stop=20.0),
    "stubborn": Behaviour(obeys=NEVER),
    "hanging": Behaviour(pre_stop=NEVER),
    "deaf": Behaviour(pre_stop=80.0, obeys=30.0),
    "never": Behaviour(ready=NEVER, unready=30.0),
    "silent": Behaviour(ready=NEVER),
    "crashing": Behaviour(ready=1.0, lives=5.0),
    "flashing": Behaviour(ready=None, lives=0.0),
    "broken": Behaviour(starts=False),
    "tiring": Behaviour(lives=4000.0),
    "freezing": Behaviour(dead=300.0, obeys=NEVER),
}
"""Every behaviour that a schedule can push."""

SOUND = frozenset({"good", "plain", "slow", "paired", "greeting", "hooked", "stubborn", "hanging", "deaf"})
"""Those whose replicas come up and stay up."""


def containers_of(name: str) -> tuple[ContainerSpec, ...]:
    """The containers of a version that behaves so; their image is the name."""
    behaviour = BEHAVIOURS[name]
    return tuple(
        ContainerSpec(
            container,
            image=name,
            readiness=None if behaviour.ready is None else PROBE,
            liveness=PROBE,
            post_start=None if behaviour.post_start is None else POST_START,
            pre_stop=None if behaviour.pre_stop is None else PRE_STOP,
        )
        for container in behaviour.containers
    )


class ProgramRun(msgspec.Struct, eq=False):
    """The truth about a container that runs; ``greets`` while its postStart hook does."""

    ready: bool
    greets: bool
    dead: bool = False
