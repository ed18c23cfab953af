"""The runtimes that there are, and which of them a location uses."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from reconciler.engines.host.paths import find_directory

if TYPE_CHECKING:
    from reconciler.engines.host.runtimes.protocol import RuntimePlugin
    from reconciler.settings import Settings

AUTO = "auto"
"""In the settings of a location: the runtime in use there, or images if this host can run them, or processes."""


def runtime_names() -> tuple[str, ...]:
    """The names of all runtimes: the packages beside this module."""
    module_infos = iter_modules([str(Path(__file__).parent)])
    return tuple(sorted(module_info.name for module_info in module_infos if module_info.ispkg))


@cache
def runtime_plugin(name: str) -> RuntimePlugin:
    """The plugin of the runtime ``name``; the schema of the settings lists the available runtimes."""
    plugin: RuntimePlugin = import_module(f"{__package__}.{name}.plugin").PLUGIN
    return plugin


def runtimes_in_use(root: Path) -> list[str]:
    """The runtimes that may have containers at the location whose directory is ``root``."""
    return [name for name in runtime_names() if runtime_plugin(name).is_in_use(root)]


def runtime_of(settings: Settings, location: str) -> str:
    """The name of the runtime of ``location``; ``auto`` keeps the one in use there."""
    name = settings.locations[location].runtime
    return name if name != AUTO else _select_runtime(settings, find_directory(settings.state, location))


def _select_runtime(settings: Settings, root: Path) -> str:
    """The runtime that has containers at ``root``; without any, the best one that is available now.

    Of several, the one for images comes first. A runtime that has containers may be unavailable for a moment: another
    one would run their programs a second time, or as processes of this host.
    """
    plugins = {name: runtime_plugin(name) for name in runtime_names()}
    ranked = sorted(plugins, key=lambda name: not plugins[name].uses_images)
    used = runtimes_in_use(root)
    return next(name for name in ranked if (name in used if used else plugins[name].is_available(settings)))
