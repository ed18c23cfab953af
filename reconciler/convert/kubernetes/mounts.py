"""Converts volumes of a pod to mounts of its containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reconciler.convert.kubernetes.bundle import JOBS, Item
from reconciler.convert.kubernetes.claims import Claims
from reconciler.convert.kubernetes.env import Readings
from reconciler.convert.mounts import ConvertedMount, MountPaths
from reconciler.convert.names import make_valid_name
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.finding import Pointer
from reconciler.model.platform import SCRATCH_URI, SECRET_URI, SPELLING, VOLUMESET_URI

_MODE = 420
"""0644, the default mode of files of secrets."""


class Volumes:
    """The volumes of one pod by name."""

    def __init__(self, user: Item, pod: TrackedValue, claims: Claims, readings: Readings) -> None:
        self._user = user
        self._claims = claims
        self._readings = readings
        self._volumes = {part["name"].require_text(): part for part in pod["volumes"].items()}
        self._used: set[str] = set()
        self._claimed: dict[str, str] = {}
        self._scratched: dict[str, str] = {}
        self._chosen: dict[Pointer, dict[str, list[TrackedValue]]] = {}
        self._templates: dict[str, str] = {}
        for template in user.spec["volumeClaimTemplates"].items() if user.kind == "StatefulSet" else ():
            name, volumeset = claims.of_template(user, template)
            self._templates[name] = volumeset

    def finish(self) -> None:
        """Note volumes that cannot be mounted, and those that no container mounts."""
        for name, part in self._volumes.items():
            if name not in self._used and any(part.peek(form) is not None for form in _FORMS):
                part.ignore()
                part.add_note("convert-left-out", f"no container mounts the volume {name}; it is left out")
            for form, source in part.fields():
                if form == "name" or form in _FORMS:
                    continue
                source.ignore()
                rule = "convert-host-path" if form == "hostPath" else "convert-left-out"
                source.add_note(
                    rule,
                    f"a volume of type {form} has no counterpart and is left out",
                    "mount a volume set, an object store or a file share instead",
                    on_key=True,
                )

    def mounts(self, container: TrackedValue) -> list[ConvertedMount]:
        """The mounts of ``container`` that the platform supports, with notes on the others."""
        entries = [(part, mount) for part in container["volumeMounts"].items() for mount in self._convert_mount(part)]
        accepted: list[ConvertedMount] = []
        paths = MountPaths()
        for part, mount in entries:
            if trouble := paths.refusal(mount.path):
                part["mountPath"].add_note("convert-mount", f"{mount.path} {trouble}; the mount is left out")
            else:
                paths.add(mount)
                accepted.append(mount)
                self._note_other_path(part["mountPath"], mount)
        return accepted

    def _note_other_path(self, part: TrackedValue, mount: ConvertedMount) -> None:
        """Note a scratch volume that was mounted at another path before: both begin empty, and share nothing."""
        if not mount.uri.startswith(SCRATCH_URI):
            return
        first = self._scratched.setdefault(mount.uri, mount.path)
        if first != mount.path:
            part.add_note(
                "convert-scratch-path",
                f"{mount.uri} is another directory at {mount.path} than at {first}",
                "mount it at one path in all containers that share it",
            )

    def _convert_mount(self, part: TrackedValue) -> Iterator[ConvertedMount]:
        name, path = part["name"].require_text(), part["mountPath"].require_text()
        if part["mountPropagation"].text("None") != "None":
            part["mountPropagation"].add_note("convert-left-out", "mounts are not propagated")
        at = f"/{path.strip('/')}"
        if name in self._templates:
            yield from self._whole(part, f"{VOLUMESET_URI}{self._templates[name]}", at)
        elif name not in self._volumes:
            part["name"].add_note("convert-malformed", f"there is no volume {name}")
        else:
            self._used.add(name)
            volume = self._volumes[name]
            forms = [form for form in _FORMS if volume[form]]
            if not forms:
                part.ignore()
                part.add_note("convert-mount", f"the volume {name} is left out, and so is this mount")
            for form in forms:
                yield from _FORMS[form](self, part, volume[form], at)

    def _whole(self, part: TrackedValue, uri: str, at: str) -> Iterator[ConvertedMount]:
        """A whole volume at one path."""
        if part["readOnly"].flag():
            part["readOnly"].add_note("convert-changed", "the volume is writable here")
        for field in ("subPath", "subPathExpr"):
            if part[field]:
                part[field].add_note(
                    "convert-changed", "a directory of a volume cannot be mounted; the whole volume is mounted"
                )
        yield ConvertedMount(uri, at)

    def _claim(self, part: TrackedValue, source: TrackedValue, at: str) -> Iterator[ConvertedMount]:
        if source["readOnly"].flag():
            source["readOnly"].add_note("convert-changed", "the volume is writable here")
        name = source["claimName"].require_text()
        if self._user.kind in JOBS:
            part.ignore()
            part.add_note(
                "convert-mount",
                f"{at} is left out: only stateful workloads mount volume sets, such as {name}",
                "use the workload that mounts it, or mount an object store",
            )
            return
        if name not in self._claimed:
            self._claimed[name] = self._claims.volume_set_for(self._user, source["claimName"])
        yield from self._whole(part, f"{VOLUMESET_URI}{self._claimed[name]}", at)

    def _scratch(self, part: TrackedValue, _: TrackedValue, at: str) -> Iterator[ConvertedMount]:
        yield from self._whole(part, f"{SCRATCH_URI}{make_valid_name(part['name'].text())}", at)

    def _secret(self, part: TrackedValue, source: TrackedValue, at: str) -> Iterator[ConvertedMount]:
        yield from self._files("Secret", part, source["secretName"], source, at)

    def _config(self, part: TrackedValue, source: TrackedValue, at: str) -> Iterator[ConvertedMount]:
        yield from self._files("ConfigMap", part, source["name"], source, at)

    def _files(
        self, kind: str, part: TrackedValue, named: TrackedValue, source: TrackedValue, at: str
    ) -> Iterator[ConvertedMount]:
        """The keys of a Secret or ConfigMap as files: all in a directory, or some of them one by one."""
        _note_file_mode(source["defaultMode"])
        secret = self._readings.secret(kind, named, source["optional"])
        if secret is None:
            return
        part["readOnly"].flag()
        if secret.type == "docker":
            named.add_note("convert-changed", f"a docker secret is mounted as a single file, ___{SPELLING}___.secret")
        items, sub = self._items(source), part["subPath"].text().strip("/")
        if not items:
            yield ConvertedMount(
                self._readings.key(secret, part["subPath"]) if sub else f"{SECRET_URI}{secret.name}", at
            )
        elif sub:
            yield from (ConvertedMount(self._readings.key(secret, key), at) for key in items.get(sub, ()))
        else:
            for path, keys in items.items():
                yield from (ConvertedMount(self._readings.key(secret, key), f"{at.rstrip('/')}/{path}") for key in keys)

    def _items(self, source: TrackedValue) -> dict[str, list[TrackedValue]]:
        """Path → the keys of the ``items`` of a volume, read once: many mounts may choose one each."""
        if source.at not in self._chosen:
            chosen: dict[str, list[TrackedValue]] = {}
            for item in source["items"].items():
                chosen.setdefault(item["path"].require_text().strip("/"), []).append(item["key"])
                _note_file_mode(item["mode"])
            self._chosen[source.at] = chosen
        return self._chosen[source.at]

    def _convert_projected(self, part: TrackedValue, source: TrackedValue, at: str) -> Iterator[ConvertedMount]:
        _note_file_mode(source["defaultMode"])
        part["readOnly"].flag()
        sources = source["sources"].items()
        for tracked_value in sources:
            for form, inner in tracked_value.fields():
                kind = {"secret": "Secret", "configMap": "ConfigMap"}.get(form, "")
                if not kind:
                    inner.ignore()
                    inner.add_note("convert-left-out", f"files from {form} have no counterpart", on_key=True)
                elif len(sources) > 1 and not inner["items"].items():
                    yield from self._each(kind, inner, at)
                else:
                    yield from self._files(kind, part, inner["name"], inner, at)

    def _each(self, kind: str, source: TrackedValue, at: str) -> Iterator[ConvertedMount]:
        """Each key as its own mount, since other files are in the same directory."""
        secret = self._readings.secret(kind, source["name"], source["optional"])
        if secret is None:
            return
        for key in self._readings.keys(secret, source):
            yield ConvertedMount(f"{SECRET_URI}{secret.name}.{key}", f"{at.rstrip('/')}/{key}")


_FORMS: dict[str, Callable[[Volumes, TrackedValue, TrackedValue, str], Iterator[ConvertedMount]]] = {
    "persistentVolumeClaim": Volumes._claim,
    "emptyDir": Volumes._scratch,
    "secret": Volumes._secret,
    "configMap": Volumes._config,
    "projected": Volumes._convert_projected,
}


def _note_file_mode(part: TrackedValue) -> None:
    mode = part.number()
    if mode is not None and mode != _MODE:
        part.add_note("convert-left-out", f"the mode of files, {mode:#o}, cannot be set")
