"""What the manifest of the org says about logins."""

from __future__ import annotations

import msgspec

from reconciler.model.key import Key, Kind
from reconciler.model.kinds.org import Org
from reconciler.records.store import Records


def org_of(records: Records, org: str) -> Org:
    """The manifest of the org as applied; its defaults if there is none."""
    for record in records.applied.get(Key(Kind.ORG, "", org)):
        return msgspec.json.decode(record.body, type=Org)
    return Org()
