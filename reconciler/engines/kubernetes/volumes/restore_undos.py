"""Undoes restores: what a restore has replaced comes back into service, also if this process ends amid that.

A claim that is deleted takes with it what it says, and a StatefulSet makes an empty one in its place. So what is under
way stands on the ConfigMap of the GVC, from before the first change until after the last one. What changes the volume
set or its workload finishes it before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from reconciler.engines.kubernetes.client.objects import CLAIM, CONFIG_MAP, KubeObject, ObjectId
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.rendering.names import PREFIX, SHORT_LENGTH, TOOL, claim_template_name, format_label
from reconciler.engines.kubernetes.status.fields import read_text
from reconciler.engines.kubernetes.status.snapshots import RESTORE_UNDONE, read_index
from reconciler.engines.kubernetes.volumes.commands import VolumeCommands
from reconciler.engines.kubernetes.volumes.snapshots import REPLACES
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

UNDO = f"undo.{PREFIX}"
"""Begins the annotations of the ConfigMap of a GVC with the restores that are being undone, one for each claim."""


class Undo(msgspec.Struct, frozen=True):
    """A restore that is being undone: in place of the claim ``uid``, the retained ``volume`` gets one like ``former``.

    ``annotation`` is its name on the ConfigMap.
    """

    volumeset: str
    uid: str
    volume: str
    former: dict[str, Any]
    annotation: str = ""

    @property
    def target(self) -> ObjectId:
        """The claim."""
        metadata = self.former["metadata"]
        return ObjectId(CLAIM, metadata["namespace"], metadata["name"])

    @property
    def index(self) -> int:
        """That of the volume."""
        return read_index(self.former) or 0


class RestoreUndos:
    """The restores of a location that are undone. Its methods raise EngineError, and may be repeated.

    Each is called while nothing else changes the volume set. ``report`` gets what became of one.
    """

    def __init__(
        self, parts: ClusterParts, commands: VolumeCommands, report: Callable[[Key, Reason, str], None]
    ) -> None:
        self._api, self._mirror, self._desired = parts.api, parts.mirror, parts.desired
        self._commands = commands
        self._report = report

    def list(self, key: Key) -> list[Undo]:
        """Those of a volume set that are under way."""
        parent = self._parent_of(key)
        item = self._mirror.get(parent)
        marks = item.annotations if item is not None else {}
        undos = (_read_undo(name, text) for name, text in sorted(marks.items()) if name.startswith(UNDO))
        # Others can write it: it names a volume of this set, here, and nothing else.
        start = f"{claim_template_name(key.name)}-"
        return [
            undo
            for undo in undos
            if undo is not None and undo.volumeset == key.name
            if undo.target.namespace == parent.namespace and undo.target.name.startswith(start)
        ]

    async def begin(self, key: Key, claim: KubeObject, why: str) -> None:
        """Put the volume that a restore has replaced back into service: ``claim``, which was to follow it, has none.

        ``why`` is noted at the claim that takes its place. The server tries that before anything is changed.
        """
        metadata = claim["metadata"]
        target = ObjectId(CLAIM, metadata["namespace"], metadata["name"])
        volume = read_text(claim, "metadata", "annotations", REPLACES)
        former = await self._commands.replaced.describe_former(claim, volume, why)
        await self._commands.replaced.try_claim(former, target)
        undo = Undo(key.name, metadata["uid"], volume, former, f"{UNDO}{format_label(target.name, SHORT_LENGTH)}")
        await self._mark(key, undo.annotation, msgspec.json.encode(undo).decode())
        await self.finish(key, undo)

    async def finish_all(self, key: Key, *, bring_back: bool = False) -> None:
        """Finish those of a volume set; its workload is applied after that, or here with ``bring_back``."""
        for undo in self.list(key):
            await self.finish(key, undo, bring_back=bring_back)

    async def finish(self, key: Key, undo: Undo, *, bring_back: bool = True) -> None:
        """Do what is left of ``undo``, and with ``bring_back`` let the workload run again."""
        workload, target = self._commands.find_user(key), undo.target
        with self._commands.away(workload):
            there = await self._api.get(target)
            if there is None or read_text(there, "spec", "volumeName") != undo.volume:
                uid = _require_vacant(target, there, undo)
                await self._commands.take_away(target, uid, workload)
                await self._commands.await_end(target, uid)
            await self._commands.replaced.put_back(target, undo.former, undo.volume)
            why = read_text(undo.former, "metadata", "annotations", RESTORE_UNDONE)
            self._report(key, Reason.VOLUME_CHECK_FAILED, why)
            await self._mark(key, undo.annotation, None)
            if bring_back:
                await self._commands.bring_back(workload)

    async def _mark(self, key: Key, annotation: str, text: str | None) -> None:
        answer = await self._api.patch(self._parent_of(key), {"metadata": {"annotations": {annotation: text}}})
        self._mirror.put(CONFIG_MAP, msgspec.json.encode(answer))

    def _parent_of(self, key: Key) -> ObjectId:
        return ObjectId(CONFIG_MAP, self._desired.namespace_of(key.gvc), TOOL)


def _read_undo(annotation: str, text: str) -> Undo | None:
    """What an annotation says; None if others have changed it so that nobody can read it."""
    try:
        undo = msgspec.json.decode(text, type=Undo)
    except msgspec.MsgspecError:
        return None
    named = all(read_text(undo.former, "metadata", name) for name in ("namespace", "name"))
    return msgspec.structs.replace(undo, annotation=annotation) if named else None


def _require_vacant(target: ObjectId, there: KubeObject | None, undo: Undo) -> str:
    """The uid of the claim that makes room. Raises EngineError if others made one, and it has data."""
    if there is None:
        return undo.uid
    uid: str = there["metadata"]["uid"]
    if uid != undo.uid and read_text(there, "spec", "volumeName"):
        message = (
            f"{target} was made meanwhile with another volume, and {undo.volume} from before the restore waits for its "
            f"place: delete the claim to have that back, or remove the annotation {undo.annotation} of the ConfigMap "
            f"{TOOL} to keep what there is"
        )
        raise EngineError(message, reason=Reason.VOLUME_IN_USE)
    return uid
