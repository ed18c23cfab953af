"""The engine of a location on this machine: steps in, workloads kept, what there is shown (design: Engines, host)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.context import Site
from reconciler.engines.deployment import Place
from reconciler.engines.host.autoscaling.autoscaler import Scaler
from reconciler.engines.host.autoscaling.decide import STEADY
from reconciler.engines.host.autoscaling.metrics import CpuMetric
from reconciler.engines.host.autoscaling.recommender import Advisor
from reconciler.engines.host.decisions.availability import is_leaving
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.endpoints import Pool
from reconciler.engines.host.housekeeping import Upkeep
from reconciler.engines.host.location_controller import Controller
from reconciler.engines.host.logs.collector import Collector
from reconciler.engines.host.probes.prober import Prober
from reconciler.engines.host.provisioning.files import Files
from reconciler.engines.host.provisioning.ownership import keep_private
from reconciler.engines.host.provisioning.provisioner import Wardrobe
from reconciler.engines.host.provisioning.template import Fixed, Supplies, Supply
from reconciler.engines.host.provisioning.tokens import Tokens
from reconciler.engines.host.replica_store import Store
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.engines.host.services import Tools
from reconciler.engines.host.status import Circumstances, described
from reconciler.engines.protocol import News, Outcome, Result, Seen
from reconciler.engines.volume_claims import Binding
from reconciler.engines.volumes import refused
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step

MOST_NEWS = 1000
"""News kept until they are asked for; older ones go."""

_encode = msgspec.json.Encoder().encode


class HostEngine:
    """Runs the workloads of one location by ``runtime``; below ``root`` is all that it keeps on disk.

    ``perform`` hands over what is wanted and returns; ``observe`` shows how it goes. What is to be gone is asked for
    again and again: until it is, the step waits as Terminating.
    """

    name = "host"
    parallel = 16
    prompt = False
    drifts = True

    def __init__(self, site: Site, root: Path, runtime: Runtime) -> None:
        settings, clock = site.settings, site.clock
        self._site = site
        self._root = root
        self._runtime = runtime
        self._binding = Binding(site.records, site.location, settings.org)
        self._tokens = Tokens(root / "tokens")
        fixed = Fixed(settings.org, site.location, settings.endpoint_domain, settings.scheme)
        self._supplies = Supplies(self._binding, site.records, self._tokens, fixed)
        self._made: dict[Key, Supply] = {}
        self._volumes: dict[Key, Seen] = {}
        ports = range(settings.host.first_port, settings.host.last_port + 1)
        self._wardrobe = Wardrobe(Files(root, site.reveal, settings.scheme), site.reveal, root / "pool", ports)
        self.pool = Pool(root / "pool")
        self._collector = Collector(root / "logs", site.location, clock, settings.host.log_budget << 20)
        self._prober = Prober(runtime, clock, lambda *told: self._controller.probed(*told))
        self._cpu = CpuMetric(runtime, clock)
        self._scaler = Scaler(self._cpu, clock)
        self._advisor = Advisor(root / "usage")
        self._news: list[News] = []
        self._changed = asyncio.Event()
        self._upkeep = Upkeep(self._collector, clock, site.location, self._tell)
        self._controller = Controller(self._tools())
        self._working: list[asyncio.Task[None]] = []
        self._asked = False
        self._opening = asyncio.Lock()

    def _tools(self) -> Tools:
        return Tools(
            runtime=self._runtime,
            outfit=self._wardrobe,
            store=Store(self._root / "replicas"),
            pool=self.pool,
            probing=self._prober,
            logging=self._collector,
            clock=self._site.clock,
            timing=Timing(self._site.settings.host.termination_scale),
            rng=random.Random(),
            tell=self._tell,
            changed=self._changed.set,
        )

    async def open(self) -> None:
        """Take over what a former daemon left running, and go on with what is recorded. Raises EngineError."""
        self._asked = True
        async with self._opening:
            if not self._working:
                await self._take_over()

    async def _take_over(self) -> None:
        keep_private(self._root)
        await self._controller.open()
        records = self._records_here()
        for record in records:
            if record.key.kind is Kind.WORKLOAD:
                self._renew(record)
                if is_leaving(self._controller.replicas(record.key)):
                    self._controller.want(record.key, None)
            else:
                self._volumes[record.key] = _seen(record)
        if records or self._site.leaving:
            self._controller.end_others({record.key for record in records} | self._begun())
        self._wardrobe.sweep(self._controller.known())
        self._working = [asyncio.create_task(self._upkeep.follow()), asyncio.create_task(self._scale())]

    async def close(self) -> None:
        """Let go of everything; what runs goes on."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        if not self._working:
            return
        self._working = []
        await self._prober.close()
        await self._controller.close()
        await self._collector.collect()

    def refresh(self) -> None:
        """Replace what was started with variables, secrets or restarts that are not the newest any more."""
        for record in self._records_here() if self._working else ():
            keeper = self._controller.keepers.get(record.key)
            if keeper is not None and keeper.wanted is not None:
                self._renew(record)

    def _renew(self, record: Record) -> None:
        """Let a workload be as it is recorded, with all that it is given; what stands in the way hurts no other."""
        try:
            supply = self._stocked(record.key, record.body, record.version, record.digest)
        except EngineError as error:
            self._tell(News(record.key, "Warning", "HostTrouble", f"{error.reason}: {error}"))
        else:
            self._want(supply)

    def _begun(self) -> set[Key]:
        """Of what a step was begun here and not recorded: it will be performed again, unless by another engine."""
        rows = () if self._site.leaving else self._site.records.journal.open()
        return {Key.parse(row.key) for row in rows if row.location == self._site.location}

    def news(self) -> list[News]:
        """What happened since this was asked last."""
        told, self._news = self._news, []
        return told

    async def changes(self) -> AsyncIterator[None]:
        """Yields whenever anything here has changed."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield

    async def observe(self) -> list[Seen]:
        """What there is: the workloads that are kept, on their way out too, and the volumes. Raises EngineError."""
        if self._asked:
            await self.open()
        if not self._working:
            return [_seen(record) for record in self._records_here()]
        kept = [self._shown(key) for key in sorted(self._controller.keepers)]
        return [*(each for each in kept if each is not None), *self._volumes.values()]

    async def perform(self, step: Step) -> Outcome:
        """Hand over what ``step`` asks for. Raises EngineError."""
        await self.open()
        if step.key.kind is Kind.WORKLOAD:
            return self._workload(step)
        if step.key.kind is Kind.VOLUMESET:
            return self._volumeset(step)
        return Outcome(step.id, Result.APPLIED, seen=_plain(step) if step.action is not Action.DELETE else None)

    async def command(self, key: Key, name: str, spec: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """There are none on this host as yet. Raises EngineError."""
        raise refused(f"the command {name} cannot be carried out at {self._site.location}: its engine is host")

    def _workload(self, step: Step) -> Outcome:
        key, past = step.key, self._binding.record(step.key)
        also = tuple(self._binding.along(step, past))
        if step.action is Action.DELETE:
            self._controller.want(key, None)
            if not self._controller.gone(key):
                return _terminating(step)
            self._forget(key)
            return Outcome(step.id, Result.APPLIED, also=also)
        made = self._made.get(key)
        if step.action is Action.REPLACE and made is not None and made.wanted.digest != step.digest:
            self._controller.want(key, None)
            if not self._controller.gone(key):
                return _terminating(step)
            self._forget(key)
        self._want(self._stocked(key, step.body, step.version, step.digest))
        self._keep_volumes(also)
        return Outcome(step.id, Result.APPLIED, seen=self._shown(key), also=also)

    def _volumeset(self, step: Step) -> Outcome:
        past = self._binding.record(step.key)
        if step.action is Action.DELETE:
            self._volumes.pop(step.key, None)
            self._wardrobe.drop_volumes(step.key)
            return Outcome(step.id, Result.APPLIED)
        if step.action is Action.REPLACE and past is not None and past.digest != step.digest:
            self._wardrobe.drop_volumes(step.key)
            past = None
        state = self._binding.state(step, past)
        seen = Seen(step.key, step.location, Health.HEALTHY, state, step.digest, step.version)
        self._volumes[step.key] = seen
        return Outcome(step.id, Result.APPLIED, seen=seen)

    def _keep_volumes(self, also: tuple[Seen, ...]) -> None:
        self._volumes.update({each.key: each for each in also})

    def _stocked(self, key: Key, body: bytes, version: int, digest: str) -> Supply:
        supply = self._supplies.of(key, body, version, digest)
        self._wardrobe.stock(supply)
        self._made[key] = supply
        return supply

    def _want(self, supply: Supply) -> None:
        key = supply.wanted.key
        self._controller.want(key, self._scaler.wanted(supply, self._controller.replicas(key)))

    def _forget(self, key: Key) -> None:
        self._made.pop(key, None)
        self._wardrobe.forget(key)
        self._scaler.forget(key)
        self._advisor.forget(key)
        self._tokens.forget(key)

    def _shown(self, key: Key) -> Seen | None:
        supply, keeper = self._made.get(key), self._controller.keepers.get(key)
        if supply is None or keeper is None:
            return None
        wanted, location = supply.wanted, self._site.location
        if keeper.wanted is None:
            record = self._binding.record(key)
            state = record.state if record is not None else b"{}"
            return Seen(key, location, Health.DELETING, state, wanted.digest, wanted.version)
        around = self._around(supply, keeper.trouble)
        health, deployment = described(keeper.wanted, tuple(keeper.replicas.values()), around)
        return Seen(key, location, health, _encode(deployment), wanted.digest, wanted.version)

    def _around(self, supply: Supply, trouble: str) -> Circumstances:
        known, domain = supply.around, self._site.settings.endpoint_domain
        place = Place(known.location, known.alias, supply.wanted.gvc_version, domain)
        advised = self._advisor.recommended(supply.wanted)
        lacking = (*self._runtime.lacks(supply.wanted), *self._wardrobe.lacking(supply))
        now, upkeep = self._site.clock.monotonic(), self._upkeep
        return Circumstances(place, now, upkeep.epoch, trouble, lacking, upkeep.jumped, advised)

    def _records_here(self) -> list[Record]:
        kinds = () if self._site.leaving else (Kind.WORKLOAD, Kind.VOLUMESET)
        found = (record for kind in kinds for record in self._site.records.applied.items(kind))
        return [each for each in found if (each.location, each.engine) == (self._site.location, self.name)]

    def _tell(self, news: News) -> None:
        self._news = [*self._news[-MOST_NEWS + 1 :], news]
        self._changed.set()

    async def _scale(self) -> None:
        """Decide again how many replicas there shall be, whenever there are new readings."""
        while True:
            await self._site.clock.sleep(STEADY)
            with suppress(EngineError):
                await self._cpu.collect()
            for key, supply in self._made.items():
                keeper = self._controller.keepers.get(key)
                if keeper is not None and keeper.wanted is not None:
                    self._advisor.learn(supply.wanted, self._cpu.used(key), self._site.clock.monotonic())
                    self._want(supply)


def _terminating(step: Step) -> Outcome:
    message = f"replicas are ending{f' at {step.location}' if step.location else ''}"
    return Outcome(step.id, Result.WAITING, "Terminating", message)


def _plain(step: Step) -> Seen:
    return Seen(step.key, step.location, Health.HEALTHY, b"{}", step.digest, step.version)


def _seen(record: Record) -> Seen:
    return Seen(record.key, record.location, record.health, record.state, record.digest, record.version, record.alias)
