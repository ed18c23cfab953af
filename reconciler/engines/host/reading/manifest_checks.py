"""What the manifests need on this host, for `reconciler doctor`: Podman, programs of volumes, HAProxy, registries."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from reconciler.checks import Check, UserIdentity, check_read_access, make_ok_check, make_problem, make_warning
from reconciler.engines.host.dataplane.choice import choose_dataplane
from reconciler.engines.host.dataplane.unserved_routes import unserved_ingress
from reconciler.engines.host.paths import ENGINE
from reconciler.engines.host.runtimes.plugins import AUTO, runtime_of, runtime_plugin
from reconciler.engines.host.volumes.backends import find_lacking_programs
from reconciler.engines.images.credentials import list_logins
from reconciler.engines.workload.image_reference import LOCAL, ImageError, parse_reference
from reconciler.engines.workload.object_stores import mounts_store
from reconciler.model.key import Key, Kind
from reconciler.model.kinds import gvc as gvcs
from reconciler.model.kinds import volumeset, workload
from reconciler.model.platform import SECRET_URI
from reconciler.planning.plan import Action, Step
from reconciler.settings import Settings

ABOUT = "manifests"
IMAGES = "podman"
"""The runtime that runs images."""
_NAMED = 3
"""Resources that a message names."""
_PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}


class _Placed(NamedTuple):
    """A workload at a location of this engine."""

    key: Key
    location: str
    spec: workload.Specification


class HostNeeds:
    """What ``steps`` would create at the locations of this engine."""

    def __init__(self, settings: Settings, steps: Iterable[Step]) -> None:
        self.settings = settings
        self.places = {name for name, bound in settings.locations.items() if bound.engine == ENGINE}
        self.workloads: list[_Placed] = []
        self.volume_sets: dict[str, set[Key]] = defaultdict(set)
        self.domains: set[Key] = set()
        self.pulling: set[str] = set()
        """The GVCs with pull secrets."""
        for step in steps:
            if step.action is not Action.DELETE:
                self._add(step)

    def _add(self, step: Step) -> None:
        if step.key.kind is Kind.DOMAIN:
            self.domains.add(step.key)
        elif step.key.kind is Kind.GVC and msgspec.json.decode(step.body, type=gvcs.Gvc).spec.pull_secret_links:
            self.pulling.add(step.key.name)
        elif step.location in self.places and step.key.kind is Kind.WORKLOAD:
            self.workloads.append(_Placed(step.key, step.location, workload.read_specification(step.body)))
        elif step.location in self.places and step.key.kind is Kind.VOLUMESET:
            self.volume_sets[volumeset.read_specification(step.body).file_system_type].add(step.key)

    def has(self, concern: str) -> bool:
        """Whether a workload has what a problem of a host concerns: see ``HostProblem``."""
        if concern == "stores":
            return any(mounts_store(placed.spec) for placed in self.workloads)
        containers = (container for placed in self.workloads for container in placed.spec.containers)
        return not concern or any(SECRET_URI in variable.value for one in containers for variable in one.env)

    def check(self, who: UserIdentity) -> Iterator[Check]:
        """What this host lacks for them, and where images come from."""
        yield from self._check_commands()
        yield from self._check_volumes(who)
        yield from self._check_domains()
        yield from self._check_registries(who)

    def _check_commands(self) -> Iterator[Check]:
        """Containers that are images only need a runtime that runs images."""
        lacking: dict[str, list[Key]] = defaultdict(list)
        for placed in self.workloads:
            is_image = any(not container.command for container in placed.spec.containers)
            if is_image and not runtime_plugin(runtime_of(self.settings, placed.location)).uses_images:
                lacking[placed.location].append(placed.key)
        for location, keys in sorted(lacking.items()):
            subject = f"{_name_first(keys)} at {location} {_choose_verb(keys)}"
            message = f"{subject} containers without a command, which need Podman"
            yield make_problem(ABOUT, message, self._advise_images(location))

    def _advise_images(self, location: str) -> str:
        if self.settings.locations[location].runtime != AUTO:
            return f"set `runtime: auto` for {location}, or give each container a command"
        problems = runtime_plugin(IMAGES).check_host(self.settings, Path("/proc"), own_user=False)
        fatal = [problem.advice for problem in problems if problem.fatal]
        return fatal[0] if fatal else "see that the daemon's user can run Podman, or give each container a command"

    def _check_volumes(self, who: UserIdentity) -> Iterator[Check]:
        """The programs that make volumes of each file system; another user than root has directories anyway."""
        setting = self.settings.host.volumes
        for system, keys in sorted(self.volume_sets.items()) if who.uid == 0 else ():
            backend = f"image-{system}" if setting == "auto" else setting
            if programs := find_lacking_programs(backend):
                package = _PACKAGES.get(backend.removeprefix("image-"), system)
                advice = f"apt-get install {package}"
                if setting == "auto":
                    what = f"are directories, which do not enforce their capacity, without {programs}"
                    yield make_warning(ABOUT, f"new volumes of {_name_first(keys)} ({system}) {what}", advice)
                else:
                    yield make_problem(
                        ABOUT, f"no volume of {_name_first(keys)} can be created without {programs}", advice
                    )

    def _check_domains(self) -> Iterator[Check]:
        """Domains need an ingress, and that needs HAProxy; a location of another engine may serve them too."""
        bound = self.settings.locations
        serving = sorted(name for name in self.places if bound[name].ingress is not None)
        if self.domains and not serving and self.places == set(bound):
            message = f"{_name_first(self.domains)} {'is' if len(self.domains) == 1 else 'are'} served nowhere"
            yield make_warning(ABOUT, message, "set `locations.NAME.ingress` in the settings")
        for location in serving if self.domains else ():
            for sentence in unserved_ingress(choose_dataplane(self.settings, location).name):
                message = f"{_name_first(self.domains)} cannot be served at {location}: {sentence}"
                yield make_problem(ABOUT, message, "apt-get install haproxy")

    def _check_registries(self, who: UserIdentity) -> Iterator[Check]:
        """The registries of images, each with where its credentials come from."""
        images = self.settings.images
        if images.credentials is not None and (missing := check_read_access(images.credentials, ABOUT, who)):
            yield missing
        uses: dict[str, set[Key]] = defaultdict(set)
        for placed in self._list_pulling_workloads():
            for container in placed.spec.containers:
                try:
                    reference = parse_reference(container.image, self.settings.org, images.registry)
                except ImageError as error:
                    message = f"an image of {placed.key} cannot be pulled: {error}"
                    yield make_problem(ABOUT, message, "see docs/containers.md#images")
                    continue
                uses[reference.registry].add(placed.key)
        uses.pop(LOCAL, None)
        logins = _read_logins(images.credentials)
        for registry, keys in sorted(uses.items()):
            origin = f"{registry}, {self._describe_login(registry, keys, logins)}"
            yield make_ok_check(ABOUT, f"images of {_name_first(keys)} come from {origin}")

    def _list_pulling_workloads(self) -> Iterator[_Placed]:
        for placed in self.workloads:
            if runtime_plugin(runtime_of(self.settings, placed.location)).uses_images:
                yield placed

    def _describe_login(self, registry: str, keys: Collection[Key], logins: Collection[str]) -> str:
        """Where the credentials for ``registry`` come from."""
        names = [f"the pull secrets of {gvc}" for gvc in sorted({key.gvc for key in keys} & self.pulling)]
        if any(login.partition("/")[0] == registry for login in logins):
            names.append(str(self.settings.images.credentials))
        return f"with {' and '.join(names)}" if names else "without credentials: public images alone"


def _read_logins(path: Path | None) -> Sequence[str]:
    """The registries in the file of credentials, as far as this user may read it."""
    with suppress(ImageError, OSError):
        return list_logins(path) if path is not None and os.access(path, os.R_OK) else ()
    return ()


def _name_first(keys: Collection[Key]) -> str:
    """The first of ``keys``, and how many more there are."""
    names = sorted({str(key) for key in keys})
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _choose_verb(keys: Collection[Key]) -> str:
    return "has" if len(set(keys)) == 1 else "have"
