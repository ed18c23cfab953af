"""The references of a recorded body, by the same code as those of a manifest."""

from __future__ import annotations

import msgspec

from reconciler.manifests.field_schema import shape_of
from reconciler.manifests.normalize import ManifestContext, Normalizer, depends_on
from reconciler.model.record import Record
from reconciler.model.resource import Dependency


def recorded_targets(record: Record, org: str) -> frozenset[str]:
    """Keys (as text) that the recorded body needs: its links, its GVC and its depends-on tag."""
    body = msgspec.json.decode(record.body)
    former = Normalizer(ManifestContext(org), record.key.gvc)
    former.normalize(shape_of(str(record.key.kind)), body)
    targets = {reference.target for reference in former.references if reference.bond is not Dependency.NONE}
    words = (body.get("tags") or {}).get("reconciler/depends-on", "")
    references, _ = depends_on(words, former.dialect, record.key.gvc, "")
    targets |= {reference.target for reference in references}
    return frozenset(targets | ({f"gvc/{record.key.gvc}"} if record.key.gvc else set()))
