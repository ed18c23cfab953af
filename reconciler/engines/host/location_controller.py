"""All workloads of one location: a keeper each, and what their containers tell, brought to the right one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from reconciler.engines.host.decisions.transitions import not_alive, probed, settled
from reconciler.engines.host.fair_turn import Pace
from reconciler.engines.host.probes.state import Kind
from reconciler.engines.host.replica import Container, Ended, Hook, Phase, Replica
from reconciler.engines.host.runtimes.protocol import Place, Running
from reconciler.engines.host.services import Tools
from reconciler.engines.host.spec import Wanted, WantedContainer
from reconciler.engines.host.workload_controller import Keeper
from reconciler.model.key import Key

LOST = "it ended while nobody watched"


class Controller:
    """Keeps the workloads of a location as wanted, from ``open`` to ``close``; what runs goes on without it."""

    def __init__(self, tools: Tools) -> None:
        self.keepers: dict[Key, Keeper] = {}
        self._tools = tools
        self._pace = Pace()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._kept: dict[Key, list[Replica]] = {}
        self._strangers: dict[Key, list[Running]] = {}
        self._sweep: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take over what there is; nothing ends for want of its workload before ``end_others``. Raises EngineError."""
        tools = self._tools
        await tools.runtime.open(self.ended)
        running = {each.place: each for each in await tools.runtime.list()}
        kept, gone = tools.store.load()
        for key, name in gone:
            await tools.runtime.remove(key, name)
            tools.store.remove(key, name)
        for replica in kept:
            tools.outfit.hold(replica)
            self._kept.setdefault(replica.key, []).append(self._as_found(replica, running))
        known = {(replica.key, replica.name) for replica in kept}
        for place, each in running.items():
            if (place.key, place.replica) not in known:
                self._strangers.setdefault(place.key, []).append(each)

    def end_others(self, recorded: Collection[Key] = ()) -> None:
        """End the replicas that were kept for workloads which are not ``recorded`` any more.

        Those of one that is, and could not be taken up, go on unwatched until it is wanted again. What runs without a
        word about it on disk stays: its workload may be wanted yet, where the records were lost.
        """
        for key in self._kept.keys() - recorded:
            self.want(key, None)

    def want(self, key: Key, wanted: Wanted | None) -> None:
        """Let the workload ``key`` be as ``wanted`` (None: gone)."""
        if wanted is None and not (key in self.keepers or key in self._kept or key in self._strangers):
            return
        keeper = self._keeper(key)
        keeper.want(wanted)
        for replica in (*self._kept.pop(key, ()), *self._found(key, wanted)):
            keeper.adopt(replica)
        keeper.stir()

    def replicas(self, key: Key) -> tuple[Replica, ...]:
        """The replicas of ``key``, those included that a former daemon left."""
        keeper = self.keepers.get(key)
        return (*(keeper.replicas.values() if keeper is not None else ()), *self._kept.get(key, ()))

    def known(self) -> set[tuple[Key, str]]:
        """Key and name of every replica that there is."""
        keys = self.keepers.keys() | self._kept.keys()
        kept = {(key, replica.name) for key in keys for replica in self.replicas(key)}
        return kept | {(key, each.place.replica) for key, found in self._strangers.items() for each in found}

    def gone(self, key: Key) -> bool:
        """Whether nothing is left of the workload ``key``."""
        return key not in self.keepers

    async def close(self) -> None:
        """End working."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for keeper in self.keepers.values():
            await keeper.close()
        if self._sweep is not None:
            await asyncio.gather(self._sweep, return_exceptions=True)
        await self._tools.runtime.close()

    def ended(self, _place: Place) -> None:
        """A container has ended: look which ones have, once for all that end at a time."""
        if self._sweep is None or self._sweep.done():
            self._sweep = asyncio.create_task(self._look())

    def probed(self, place: Place, kind: Kind, good: bool, message: str) -> None:
        """The verdict on a container is another one."""
        keeper, now = self.keepers.get(place.key), self._tools.clock.monotonic()
        if keeper is None:
            return
        if kind is Kind.READINESS:
            keeper.hear(place.replica, lambda it: probed(it, place.container, good, now, message))
        elif not good:
            keeper.hear(place.replica, lambda it: not_alive(it, place.container, now, message))

    async def _look(self) -> None:
        now = self._tools.clock.monotonic()
        for each in await self._tools.runtime.list():
            keeper = self.keepers.get(each.place.key)
            if not each.alive and keeper is not None:
                keeper.ended(each.place, how_ended(each, now))

    def _keeper(self, key: Key) -> Keeper:
        if key not in self.keepers:
            keeper = self.keepers[key] = Keeper(key, self._tools, self._pace)
            self._tasks[key] = asyncio.create_task(self._keep(keeper), name=f"keep {key}")
        return self.keepers[key]

    async def _keep(self, keeper: Keeper) -> None:
        await keeper.follow()
        del self.keepers[keeper.key], self._tasks[keeper.key]
        self._tools.pool.drop(keeper.key)
        self._tools.changed()

    def _as_found(self, replica: Replica, running: Mapping[Place, Running]) -> Replica:
        """``replica`` as a former daemon left it, with what has happened to its containers since."""
        now = self._tools.clock.monotonic()
        containers = []
        for container in replica.containers:
            found = running.get(Place(replica.key, replica.name, container.name))
            containers.append(_since(container, found, now))
        return settled(replace(replica, containers=tuple(containers)), now)

    def _found(self, key: Key, wanted: Wanted | None) -> list[Replica]:
        """Replicas of which only the running containers are known, by their labels."""
        by_name: dict[str, list[Running]] = {}
        for each in self._strangers.pop(key, ()):
            by_name.setdefault(each.place.replica, []).append(each)
        now = self._tools.clock.monotonic()
        return [_unknown(key, name, found, wanted, now) for name, found in sorted(by_name.items())]


def how_ended(running: Running, now: float) -> Ended:
    """How an ended container ended, in the words of replicas."""
    code = -1 if running.code is None else running.code
    reason = running.reason or ("Completed" if code == 0 else "Error")
    return Ended(code, now, reason, LOST if running.code is None else "")


def _since(container: Container, found: Running | None, now: float) -> Container:
    """``container`` with what has happened to it while nobody watched; a hook that ran then is over.

    Of one that the runtime knows nothing of the daemon had just begun the start.
    """
    container = replace(container, post_start=_over(container.post_start), pre_stop=_over(container.pre_stop))
    if found is not None and found.alive:
        if container.phase is Phase.RUNNING:
            return container
        ready = container.wanted.readiness is None
        return Container(container.name, Phase.RUNNING, found.started, ready, wanted=container.wanted)
    if container.phase is not Phase.RUNNING:
        return container
    if found is None:
        return replace(container, phase=Phase.WAITING, due=now, ready=False, post_start=Hook.NONE)
    return replace(container, phase=Phase.ENDED, ready=False, last=how_ended(found, now))


def _over(hook: Hook) -> Hook:
    return Hook.DONE if hook is Hook.RUNNING else hook


def _unknown(key: Key, name: str, found: list[Running], wanted: Wanted | None, now: float) -> Replica:
    """A replica as its labels tell it: not ready until it says so itself.

    Its ports are forgotten: where it has some it counts as an old one, and a rollout replaces it.
    """
    specs = {each.name: each for each in wanted.containers} if wanted is not None else {}
    containers = tuple(_labelled(each, specs.get(each.place.container, WantedContainer("")), now) for each in found)
    stamp = "" if any(each.wanted.ports for each in containers) else found[0].stamp
    return Replica(name, key, found[0].version, stamp, now, containers, index=found[0].index)


def _labelled(found: Running, wanted: WantedContainer, now: float) -> Container:
    phase = Phase.RUNNING if found.alive else Phase.ENDED
    last = None if found.alive else how_ended(found, now)
    ready = found.alive and wanted.readiness is None
    return Container(found.place.container, phase, started=found.started, ready=ready, last=last, wanted=wanted)
