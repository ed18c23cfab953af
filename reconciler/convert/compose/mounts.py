"""Mounts of services: volumes, directories in memory, and files of secrets, configs and the project."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reconciler.convert.compose.stored_files import StoredFile, StoredFiles
from reconciler.convert.compose.values import Field
from reconciler.convert.drafts import Body, Draft, DraftPlace
from reconciler.convert.mounts import ConvertedMount, MountPaths
from reconciler.convert.names import Names, make_valid_name
from reconciler.convert.quantities import convert_to_gigabytes
from reconciler.model.finding import Pointer
from reconciler.model.key import Kind
from reconciler.model.platform import SCRATCH_URI, SECRET_URI, VOLUMESET_URI

_MOST = 15
"""The most volumes of a workload (docs/platform/workload.md#volumes)."""
_LEAST_CAPACITY, _MOST_CAPACITY = 10, 16384
_SECRETS_AT = "/run/secrets"


class ServiceMounts(NamedTuple):
    """The mounts of a service, and the secrets that they read."""

    mounts: list[ConvertedMount]
    secrets: set[str]


class _Wanted(NamedTuple):
    """A mount at the value that asks for it; ``secret`` is "" if it reads none."""

    part: Field
    mount: ConvertedMount
    secret: str = ""


class ComposeVolumes:
    """The volume sets of a project, each with the one service that uses it."""

    def __init__(self, root: Field, gvc: str, names: Names, files: StoredFiles) -> None:
        self.drafts: list[Draft] = []
        self._root = root
        self._gvc = gvc
        self._names = names
        self._files = files
        self._by_name: dict[str, Draft] = {}
        self._sets: dict[str | tuple[str, str], str] = {}
        self._users: dict[str, str] = {}

    def mounts(
        self, name: str, service: Field, *, is_job: bool, stored: Mapping[str, str], scope: str = ""
    ) -> ServiceMounts:
        """The mounts of the service ``name`` that the platform supports, with notes on the others.

        ``stored``: path → the secret that is the file there. Names of scratch volumes begin with ``scope``: those of
        two containers of a workload are two directories.
        """
        mounted, paths = ServiceMounts([], set()), MountPaths()
        requests = [
            *self._list_mounts(name, service, is_job=is_job),
            *self._in_memory(service),
            *self._list_stored_files(service),
        ]
        requests = [_scope_scratch_volume(request, scope) for request in requests] if scope else requests
        requests += [_Wanted(service, ConvertedMount(f"{SECRET_URI}{text}", at), text) for at, text in stored.items()]
        for part, mount, secret in requests:
            if trouble := paths.refusal(mount.path):
                part.add_note("convert-mount", f"the path {_without_uri(trouble)}; the mount is left out")
            elif len(mounted.mounts) == _MOST:
                part.add_note("convert-mount", f"a workload has at most {_MOST} mounts; this one is left out")
            else:
                paths.add(mount)
                mounted.mounts.append(mount)
                mounted.secrets.update({secret} - {""})
        return mounted

    def note_unused(self) -> None:
        """Note the volumes that no service mounts."""
        for name, part in self._root["volumes"].fields():
            if name not in self._sets:
                part.ignore()
                part.add_note("convert-left-out", f"no service mounts {name}; it is left out", on_key=True)

    def _list_mounts(self, name: str, service: Field, *, is_job: bool) -> Iterator[_Wanted]:
        for part in service["volumes"].items():
            kind, target = part["type"].text("volume"), part["target"]
            path = _resolve_mount_path(target, "")
            if not path:
                part.ignore()
            elif kind == "bind":
                yield from self._list_binds(part, path)
            elif kind == "tmpfs" or (kind == "volume" and not part["source"]):
                yield _Wanted(part, ConvertedMount(f"{SCRATCH_URI}{make_valid_name(path)}", path))
            elif kind == "volume":
                yield from self._volume(name, service, part, path, is_job=is_job)
            else:
                part.ignore()
                part.add_note("convert-left-out", "a mount of this `type` has no counterpart and is left out")

    def _list_binds(self, part: Field, path: str) -> Iterator[_Wanted]:
        part["source"].require_text()
        stored = self._files.file(part["source"])
        part["read_only"].flag()
        if stored is None:
            part.ignore()
        elif _can_mount_file(part, stored, path):
            yield _Wanted(part, ConvertedMount(stored.uri, path), stored.secret)

    def _volume(self, name: str, service: Field, part: Field, path: str, *, is_job: bool) -> Iterator[_Wanted]:
        source = part["source"]
        declared = self._root["volumes"].value or {}
        if source.text() not in declared:
            part.ignore()
            source.add_note(
                "convert-malformed",
                "`volumes` does not declare the volume of this mount",
                "add it to `volumes`; a path begins with ./ or /",
            )
        elif is_job:
            self._sets.setdefault(source.text(), "")
            part.ignore()
            part.add_note(
                "convert-mount",
                "a service that runs to its end mounts no volume; the mount is left out",
                "use the workload that mounts the volume",
            )
        else:
            if part["read_only"].flag():
                part["read_only"].add_note("convert-changed", "the volume is writable here")
            yield _Wanted(part, ConvertedMount(f"{VOLUMESET_URI}{self._of(name, service, source)}", path))

    def _of(self, name: str, service: Field, source: Field) -> str:
        """The volume set for the volume that ``source`` names; a new one where another service has that already."""
        volume = source.text()
        if not self._sets.get(volume):
            self._sets[volume] = self._add(volume, self._root["volumes"][volume])
        text = self._sets[volume]
        user = self._users.setdefault(volume, name)
        if user == name:
            count = service["deploy"]["replicas"].number() or service["scale"].number() or 1
            if count > 1:
                source.add_note("convert-shared-volume", f"each of the {count} replicas has a volume of its own")
            return text
        source.add_note(
            "convert-shared-volume",
            f"{user} has the volume {volume}; {name} gets one of its own",
            "copy the data that both need, or let one service serve it to the other",
        )
        own = (volume, name)
        if own not in self._sets:
            self._sets[own] = self._names.take(Kind.VOLUMESET, self._gvc, (f"{text}-{name}",))
            if text in self._by_name:
                origin = self._by_name[text]
                self._add_draft(self._sets[own], {**origin.body, "name": self._sets[own]}, source.at)
        return self._sets[own]

    def _add(self, name: str, part: Field) -> str:
        wish = part["name"].text() or name
        external = part["external"]
        if external and (isinstance(external.value, dict) or external.flag()):
            named = external["name"].text() if isinstance(external.value, dict) else ""
            text = make_valid_name(named or wish)
            part.add_note("convert-missing", f"{name} is external", f"the volume set {text} must exist", on_key=True)
            return text
        text = self._names.take(Kind.VOLUMESET, self._gvc, (wish,))
        spec = {"initialCapacity": _find_capacity(name, part), "performanceClass": "general-purpose-ssd"}
        tags = part["labels"].mapping()
        body = {"kind": "volumeset", "name": text, "gvc": self._gvc, **({"tags": tags} if tags else {}), "spec": spec}
        self._add_draft(text, body, part.at)
        return text

    def _add_draft(self, name: str, body: Body, at: Pointer) -> None:
        self._by_name[name] = Draft(Kind.VOLUMESET, self._gvc, name, body, DraftPlace("", 0, at))
        self.drafts.append(self._by_name[name])

    def _in_memory(self, service: Field) -> Iterator[_Wanted]:
        for part in service["tmpfs"].items():
            path, _, options = part.text().partition(":")
            if options:
                part.add_note(
                    "convert-left-out",
                    "the options have no counterpart and are left out",
                    "the directory counts as ephemeral storage",
                )
            if path.startswith("/"):
                yield _Wanted(part, ConvertedMount(f"{SCRATCH_URI}{make_valid_name(path)}", f"/{path.strip('/')}"))
            else:
                part.add_note("convert-malformed", "an entry of `tmpfs` is not an absolute path")

    def _list_stored_files(self, service: Field) -> Iterator[_Wanted]:
        for section, directory in (("secrets", _SECRETS_AT), ("configs", "/")):
            for part in service[section].items():
                name = part["source"].require_text()
                path = _resolve_mount_path(part["target"], posixpath.join(directory, name), directory)
                stored = self._files.find_declared(section, name, part) if name else None
                if stored is None:
                    part.ignore()
                elif _can_mount_file(part, stored, path):
                    yield _Wanted(part, ConvertedMount(stored.uri, path), stored.secret)


def _scope_scratch_volume(request: _Wanted, scope: str) -> _Wanted:
    """``request`` with a scratch volume of its own in ``scope``."""
    uri, path = request.mount
    is_scratch = uri.startswith(SCRATCH_URI)
    return (
        request._replace(mount=ConvertedMount(f"{SCRATCH_URI}{make_valid_name(f'{scope}{path}')}", path))
        if is_scratch
        else request
    )


def _can_mount_file(part: Field, stored: StoredFile, path: str) -> bool:
    """Whether ``stored`` can be the file ``path``; else ``part`` gets a note."""
    if stored.is_whole and path.count("/") < 2:
        part.add_note(
            "convert-mount",
            "a secret as a whole needs a path of two segments; the mount is left out",
            "mount it below a directory",
        )
        return False
    return True


def _resolve_mount_path(target: Field, default: str, directory: str = "") -> str:
    """The path of a mount, below ``directory`` if it is relative; "" with a note where there is none."""
    text = target.text() or default
    if directory and not text.startswith("/"):
        text = posixpath.join(directory, text)
    path = posixpath.normpath(text) if text else ""
    if path.startswith("/"):
        return f"/{path.strip('/')}"
    target.add_note("convert-malformed", "`target` is not an absolute path")
    return ""


def _find_capacity(name: str, part: Field) -> int:
    """GB of a volume set (docs/platform/volumeset.md#performance-classes)."""
    size = part["driver_opts"]["size"].size() if isinstance(part.peek("driver_opts"), dict) else None
    if size is None:
        part.add_note(
            "compose-capacity",
            f"{name} has no size, and becomes {_LEAST_CAPACITY} GB",
            "set driver_opts.size, or initialCapacity of the volume set",
            on_key=True,
        )
        return _LEAST_CAPACITY
    requested = convert_to_gigabytes(size)
    capacity = min(max(requested, _LEAST_CAPACITY), _MOST_CAPACITY)
    if capacity != requested:
        bounds = f"a volume has {_LEAST_CAPACITY} to {_MOST_CAPACITY} GB"
        part["driver_opts"]["size"].add_note("convert-capacity", f"{bounds}, so {capacity}")
    return capacity


def _without_uri(trouble: str) -> str:
    """The trouble of a path without the URI of the other mount, which may have come from a variable."""
    return "is taken by another mount" if trouble.startswith("is taken") else trouble.partition(" mount ")[0]
