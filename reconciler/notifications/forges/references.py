"""What a report on a commit has at a forge, as one text: such as ``check=1;deployment=2;key=0``."""

from __future__ import annotations

import re

import msgspec

from reconciler.notifications.forges.values import FIRST

_PART = re.compile(r"([a-z]{1,20})=([0-9A-Za-z_-]{1,64})")


class Reference(msgspec.Struct, frozen=True):
    """Ids at a forge by what they name."""

    ids: dict[str, str] = {}

    @classmethod
    def parse(cls, text: str) -> Reference:
        """The inverse of ``str``; what is no id is left out."""
        parts = (_PART.fullmatch(part) for part in text.split(";"))
        return cls({part[1]: part[2] for part in parts if part is not None})

    def get(self, name: str) -> str:
        """The id of ``name``, "" for none."""
        return self.ids.get(name, "")

    def with_id(self, name: str, value: str) -> Reference:
        """The same with ``value`` as the id of ``name``, unless that is empty."""
        return Reference({**self.ids, name: value}) if value else self

    def get_deployment(self, key: str) -> str:
        """The deployment with ``key``, "" for none."""
        return self.get("deployment") if self.get("key") in (key, "" if key == FIRST else key) else ""

    def with_deployment(self, deployment: str, key: str) -> Reference:
        """The same with ``deployment``, which has ``key``, unless that is empty."""
        return self.with_id("deployment", deployment).with_id("key", key) if deployment else self

    def __str__(self) -> str:
        return ";".join(f"{name}={value}" for name, value in sorted(self.ids.items()))
