"""The templates of workloads that replicas start from: in memory, and in files for executions of cron workloads.

An execution keeps the version that it begins with. After a rollout and a restart of the daemon, only its file has that.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.provisioning.tokens import WorkloadTokens
from reconciler.engines.workload.spec import Type
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Specification, read_specification
from reconciler.model.record import Record

Made = tuple[int, str]
"""Version and ``config_hash`` of a replica."""


class TemplateFiles:
    """Files ``GVC/WORKLOAD/VERSION-HASH.json`` below ``root``, without the tokens of the workloads."""

    def __init__(self, root: Path, tokens: WorkloadTokens) -> None:
        self._root = root
        self._tokens = tokens

    def save(self, template: ReplicaTemplate) -> None:
        """Write ``template``, unless it has a file. Raises EngineError."""
        desired = template.desired
        path = self._path(desired.key, (desired.version, desired.config_hash))
        if not path.exists():
            stored = replace(template, env_context=replace(template.env_context, token=""))
            write_atomic(path, msgspec.json.encode(stored), 0o600)

    def load(self, key: Key, revision: Made) -> ReplicaTemplate | None:
        """The stored template; None if there is none, or if it cannot be read. Raises EngineError."""
        try:
            stored = msgspec.json.decode(self._path(key, revision).read_bytes(), type=ReplicaTemplate)
        except (OSError, msgspec.DecodeError):
            return None
        return replace(stored, env_context=replace(stored.env_context, token=self._tokens.of(key)))

    def retain(self, key: Key, in_use: Collection[Made]) -> None:
        """Remove the files of ``key`` for all but ``in_use``."""
        remaining = {self._path(key, revision) for revision in in_use}
        for path in list_paths(self._root / key.gvc / key.name, "*.json"):
            if path not in remaining:
                with suppress(OSError):
                    path.unlink()

    def forget_others(self, recorded: Collection[Key]) -> None:
        """Remove the files of all workloads but ``recorded``."""
        for path in list_paths(self._root, "*/*"):
            if Key(Kind.WORKLOAD, path.parent.name, path.name) not in recorded:
                self.forget(Key(Kind.WORKLOAD, path.parent.name, path.name))

    def forget(self, key: Key) -> None:
        """Remove the files of a removed workload."""
        self.retain(key, ())
        with suppress(OSError):
            (self._root / key.gvc / key.name).rmdir()

    def _path(self, key: Key, revision: Made) -> Path:
        return self._root / key.gvc / key.name / f"{revision[0]}-{revision[1]}.json"


class TemplateStore(LocationPart):
    """The newest template of each workload, and those of older versions that replicas still use."""

    def __init__(self, files: TemplateFiles | None = None) -> None:
        self._files = files
        self.newest: dict[Key, ReplicaTemplate] = {}
        self._templates: dict[Key, dict[Made, ReplicaTemplate]] = {}

    def add(self, template: ReplicaTemplate, in_use: Collection[Made]) -> ReplicaTemplate:
        """Make ``template`` the newest of its workload, and drop older ones that are not ``in_use``.

        ``in_use`` contains version and ``config_hash`` of each replica. A version keeps its creation time.
        """
        desired = template.desired
        older = self._templates.get(desired.key, {})
        created = next(
            (template.created for template in older.values() if template.desired.version == desired.version), ""
        )
        template = replace(template, created=created or template.created)
        remaining = {revision: template for revision, template in older.items() if revision in in_use}
        self._templates[desired.key] = remaining | {(desired.version, desired.config_hash): template}
        self.newest[desired.key] = template
        if self._files is not None and desired.type is Type.CRON:
            self._files.retain(desired.key, {*in_use, (desired.version, desired.config_hash)})
        return template

    def store(self, key: Key, version: int, config_hash: str) -> None:
        """Write a template to its file: an execution begins with it. Raises EngineError."""
        template = self._templates.get(key, {}).get((version, config_hash))
        if template is not None and self._files is not None:
            self._files.save(template)

    def get(self, key: Key, version: int, config_hash: str) -> ReplicaTemplate | None:
        """The template for ``version`` and ``config_hash``; None if it is unknown. Raises EngineError."""
        templates, revision = self._templates.setdefault(key, {}), (version, config_hash)
        if revision not in templates and self._files is not None:
            stored = self._files.load(key, revision)
            templates |= {revision: stored} if stored is not None else {}
        return templates.get(revision)

    def specification(self, record: Record) -> Specification:
        """The spec of ``record``; its body is decoded only if the newest template has another digest."""
        template = self.newest.get(record.key)
        if template is not None and template.desired.digest == record.digest:
            return template.spec
        return read_specification(record.body)

    def creation_times(self, key: Key) -> dict[int, str]:
        """The creation time of each known version of the workload, ISO 8601."""
        return {template.desired.version: template.created for template in self._templates.get(key, {}).values()}

    def retain(self, keys: Collection[Key]) -> None:
        """Remove the files of all workloads but ``keys``."""
        if self._files is not None:
            self._files.forget_others(keys)

    def forget(self, key: Key) -> None:
        """Forget a removed workload."""
        self.newest.pop(key, None)
        self._templates.pop(key, None)
        if self._files is not None:
            self._files.forget(key)
