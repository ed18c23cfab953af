"""Which volumes are nearly full: a condition that begins at one level, and ends below a lower one."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

import msgspec

from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.protocol import Observation
from reconciler.engines.workload.status import DeploymentCondition, with_condition
from reconciler.model.key import Key
from reconciler.model.quantity import GIB
from reconciler.reasons import ConditionType, Reason

NEARLY_FULL, HAS_ROOM = 0.90, 0.85
"""The share in use from which a volume is nearly full, and the one below which it no longer is."""


class FilledVolume(NamedTuple):
    """A volume with a limit: its ``capacity`` in GB, and the bytes in use; 0: they are not known."""

    number: int
    capacity: float
    used: int

    @property
    def share(self) -> float:
        """The part that is in use, 0 to 1."""
        return self.used / (self.capacity * GIB) if self.capacity > 0 else 0.0


class VolumeFill:
    """Which volume sets have a volume that is nearly full, with the message that says which."""

    def __init__(self) -> None:
        self._messages: dict[Key, str] = {}

    def restore(self, key: Key, state: bytes) -> None:
        """Continue from the recorded ``state`` of a volume set, unless it was seen since the start."""
        if key not in self._messages:
            kind = ConditionType.VOLUME_NEARLY_FULL
            self._messages[key] = next((one.message for one in engine_conditions(state) if one.type is kind), "")

    def retain(self, keys: Container[Key]) -> None:
        """Forget volume sets that do not exist any more."""
        self._messages = {key: message for key, message in self._messages.items() if key in keys}

    def with_condition(self, seen: Observation, volumes: Iterable[FilledVolume]) -> Observation:
        """``seen``, a volume set, with a condition if any of ``volumes`` is nearly full."""
        message = self._messages[seen.key] = describe_fill(tuple(volumes), self._messages.get(seen.key, ""))
        if not message:
            return seen
        kind, reason = ConditionType.VOLUME_NEARLY_FULL, Reason.VOLUME_NEARLY_FULL
        state = with_condition(seen.state, DeploymentCondition(kind, "True", reason, message))
        return msgspec.structs.replace(seen, state=state)


def describe_fill(volumes: tuple[FilledVolume, ...], former: str) -> str:
    """What is nearly full, if ``former`` was said before; "" for nothing.

    It names no level, which changes all the time.
    """
    limit = HAS_ROOM if former else NEARLY_FULL
    if all(volume.share < limit for volume in volumes):
        # Until it is measured after a start, a volume is as full as it was.
        return former if any(not volume.used for volume in volumes) else ""
    percent = round(100 * (1 - HAS_ROOM))
    full = [volume for volume in volumes if volume.share >= HAS_ROOM]
    named = " and ".join(f"volume {volume.number} ({volume.capacity:g} GB)" for volume in full)
    return f"less than {percent} % of {named} is free"
