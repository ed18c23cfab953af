"""The protocol of engine plugins, and the plugins that there are: packages beside this module, found by walking."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from reconciler import engines
from reconciler.errors import NotFoundError
from reconciler.listing import list_paths
from reconciler.model.key import Key

if TYPE_CHECKING:
    from reconciler.checks import Check, UserIdentity
    from reconciler.clock import Clock
    from reconciler.engines.context import EngineContext
    from reconciler.engines.protocol import Engine, SecretReader
    from reconciler.engines.reading import LocationReader
    from reconciler.planning.plan import Step
    from reconciler.records.store import Records
    from reconciler.settings import Settings

RECORDED = "recorded"
"""The engine that runs nothing. It also has the resources without a location."""


class EnginePlugin(Protocol):
    """An engine as the rest of the program knows it. ``name`` is that of its package, and the one in the settings.

    ``runs_workloads``: something runs at its locations, and is not only recorded. An idle process imports the module of
    each plugin, so it imports the engine itself only to make one.
    """

    name: str
    runs_workloads: bool

    def make(self, context: EngineContext) -> Engine:
        """The engine of one location, not opened yet."""

    def make_reader(self, settings: Settings, location: str) -> LocationReader:
        """A reader of what the engine has at ``location``, whether or not the settings bind that to it now."""


@runtime_checkable
class SupportsLeftovers(EnginePlugin, Protocol):
    """A plugin whose engine leaves something where the settings bind it no more: logs, final snapshots, containers."""

    def list_locations(self, settings: Settings) -> Collection[str]:
        """The locations that have something of this engine, sorted. Raises PermissionError."""


class ForeseenLimitation(msgspec.Struct, frozen=True, order=True):
    """One sentence of a future NotEnforced condition, with the location and the affected workloads."""

    message: str
    location: str
    keys: tuple[Key, ...]


class ForeseenStop(msgspec.Struct, frozen=True, order=True):
    """A replica that stops while a volume of ``key`` grows."""

    location: str
    key: Key
    message: str


@runtime_checkable
class SupportsThisMachine(EnginePlugin, Protocol):
    """A plugin whose engine runs workloads on this machine, with what is installed here."""

    def suggest_location(self) -> dict[str, str]:
        """The settings of a location that is this machine."""


@runtime_checkable
class SupportsForesight(EnginePlugin, Protocol):
    """A plugin that knows before a step what its engine will not enforce, and what it will stop."""

    def foresee_limitations(
        self, settings: Settings, records: Records, steps: Iterable[Step]
    ) -> Sequence[ForeseenLimitation]:
        """The limitations that ``steps`` add to those of the recorded workloads, sorted."""

    def foresee_stops(self, settings: Settings, records: Records, steps: Iterable[Step]) -> Sequence[ForeseenStop]:
        """The replicas that ``steps`` stop, sorted."""


class ForeseenRollout(msgspec.Struct, frozen=True, order=True):
    """A workload whose replicas are all replaced since the settings changed, whatever its manifest says."""

    location: str
    key: Key
    message: str


@runtime_checkable
class SupportsRollouts(EnginePlugin, Protocol):
    """A plugin whose settings decide how replicas run, so that a change of them is a rollout."""

    def foresee_rollouts(self, settings: Settings) -> Sequence[ForeseenRollout]:
        """The workloads that run otherwise than ``settings`` say, sorted."""


class ForeseenRefusal(msgspec.Struct, frozen=True, order=True):
    """What a location refuses of the step of ``key``, in its own words where it was asked."""

    location: str
    key: Key
    message: str


class ForeseenReplacement(msgspec.Struct, frozen=True, order=True):
    """What is deleted at a location and made again for the step of ``key``, and what stays meanwhile."""

    location: str
    key: Key
    message: str


class UnaskedLocation(msgspec.Struct, frozen=True, order=True):
    """A location that was not asked about a plan, or not about all of it, and why."""

    location: str
    message: str


class PlanTrial(msgspec.Struct, frozen=True):
    """What locations say of a plan before anything is applied, each part sorted."""

    refusals: tuple[ForeseenRefusal, ...] = ()
    replacements: tuple[ForeseenReplacement, ...] = ()
    unasked: tuple[UnaskedLocation, ...] = ()


@runtime_checkable
class SupportsTrial(EnginePlugin, Protocol):
    """A plugin whose engine lets its locations try the steps of a plan, which changes nothing."""

    def try_steps(self, settings: Settings, records: Records, steps: Iterable[Step]) -> PlanTrial | None:
        """What the locations of the engine refuse of ``steps``, and what they make anew; None without an opinion.

        A location that does not answer within seconds is not waited for.
        """


@runtime_checkable
class SupportsDoctor(EnginePlugin, Protocol):
    """A plugin that checks, for `reconciler doctor`, what its engine needs."""

    def check_host(
        self, settings: Settings, who: UserIdentity, pid: int | None, steps: Sequence[Step] | None
    ) -> Iterator[Check]:
        """Check this host for the locations of the engine; ``pid`` is the daemon's, None if none runs.

        ``steps`` would create all that the manifests have, None if they cannot be read: then all counts as needed.
        """

    def check_certificates(
        self, settings: Settings, records: Records | None, reveal: SecretReader, clock: Clock
    ) -> Iterator[Check]:
        """Check the certificates of its locations; those in secrets only with ``records``, which are for reading.

        ``reveal`` also raises SourceError.
        """


class RenderedObjects(NamedTuple):
    """What an engine has at its location for a resource, as another tool reads it: objects in plain JSON values."""

    key: Key
    objects: list[dict[str, Any]]


@runtime_checkable
class SupportsRendering(EnginePlugin, Protocol):
    """A plugin whose engine applies objects that other tools can apply, too."""

    def render(
        self,
        settings: Settings,
        records: Records,
        location: str,
        reveal: SecretReader,
        takes: Callable[[Key], bool],
    ) -> Iterator[RenderedObjects]:
        """The objects of the recorded resources at ``location`` that ``takes`` accepts, in the order to apply.

        Raises EngineError and NotFoundError.
        """

    def render_planned(
        self,
        settings: Settings,
        records: Records,
        location: str,
        steps: Sequence[Step],
        takes: Callable[[Key], bool],
    ) -> Iterator[RenderedObjects]:
        """As ``render``, once ``steps`` are performed. Secrets have no values, so names that end with a digest differ.

        Raises EngineError and NotFoundError.
        """

    def mask(self, objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """``objects`` without secret data."""

    def render_access(self, namespace: str, account: str) -> list[dict[str, Any]]:
        """The objects that give an account the rights that the engine needs."""


@runtime_checkable
class SupportsHolds(EnginePlugin, Protocol):
    """A plugin whose engine lets requests wait while an operator holds them."""

    holds_requests: bool


@runtime_checkable
class SupportsHostPrograms(EnginePlugin, Protocol):
    """A plugin whose engine can run programs of its host in place of images."""

    def runs_host_programs(self, settings: Settings, location: str) -> bool:
        """Whether ``location`` surely does so."""


def list_engines() -> tuple[str, ...]:
    """The names of all engines, sorted."""
    return _list_packages(tuple(engines.__path__))


@cache
def _list_packages(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the packages in ``folders`` that have a plugin; each question for a plugin asks for them."""
    paths = (path for folder in folders for path in list_paths(Path(folder), "*/plugin.py"))
    return tuple(sorted({path.parent.name for path in paths}))


def find_plugin(name: str) -> EnginePlugin | None:
    """The plugin of the engine ``name``; None if there is none."""
    if name not in list_engines():
        return None
    plugin: EnginePlugin = import_module(f"{engines.__name__}.{name}.plugin").PLUGIN
    return plugin


def list_plugins() -> list[EnginePlugin]:
    """The plugins of all engines, sorted by name."""
    return [plugin for name in list_engines() if (plugin := find_plugin(name)) is not None]


def runs_workloads(name: str) -> bool:
    """Whether something runs at the locations of the engine ``name``."""
    plugin = find_plugin(name)
    return plugin is not None and plugin.runs_workloads


def is_running_engine(plugin: EnginePlugin) -> bool:
    """Whether something runs at the locations of an engine."""
    return plugin.runs_workloads


def is_holding_engine(plugin: EnginePlugin) -> bool:
    """Whether requests can wait at the locations of an engine."""
    return isinstance(plugin, SupportsHolds) and plugin.holds_requests


def suggest_location() -> dict[str, str]:
    """The settings of a location that is this machine."""
    return next(plugin.suggest_location() for plugin in list_plugins() if isinstance(plugin, SupportsThisMachine))


def name_engines(takes: Callable[[EnginePlugin], bool] = is_running_engine) -> str:
    """The engines that ``takes`` accepts, for a sentence: ``host or kubernetes``."""
    return " or ".join(plugin.name for plugin in list_plugins() if takes(plugin))


def make_reader(settings: Settings, location: str) -> LocationReader:
    """A reader of a location that the settings bind. Raises NotFoundError if they do not, or to no engine."""
    bound = settings.locations.get(location)
    plugin = find_plugin(bound.engine) if bound is not None else None
    if plugin is None:
        raise NotFoundError(f"the settings bind no location {location!r}")
    return plugin.make_reader(settings, location)


def make_readers(settings: Settings) -> list[LocationReader]:
    """A reader of each location that the settings bind, sorted by location."""
    plugins = ((location, find_plugin(bound.engine)) for location, bound in sorted(settings.locations.items()))
    return [plugin.make_reader(settings, location) for location, plugin in plugins if plugin is not None]


def make_all_readers(settings: Settings) -> list[LocationReader]:
    """Those of the bound locations, and of all others where an engine left something. Raises PermissionError."""
    pairs = {(location, bound.engine) for location, bound in settings.locations.items()}
    for plugin in list_plugins():
        if isinstance(plugin, SupportsLeftovers):
            pairs |= {(location, plugin.name) for location in plugin.list_locations(settings)}
    plugins = ((location, find_plugin(name)) for location, name in sorted(pairs))
    return [plugin.make_reader(settings, location) for location, plugin in plugins if plugin is not None]
