"""Links alone can make no cycle: the kinds that they lead to have an order."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import TopologicalSorter

from reconciler.manifests.field_schema import FieldSchema, shape_of
from reconciler.model.key import GVC_SCOPED, Kind


def needed(shape: FieldSchema) -> Iterator[str]:
    """Kinds that links at or below ``shape`` wait for."""
    if shape.depends:
        wanted = tuple(Kind) if shape.link == ("*",) else shape.link
        yield from (kind for kind in wanted if kind not in shape.peers)
    if shape.uri:
        yield from (Kind.SECRET, Kind.VOLUMESET)
    for below in (*shape.properties.values(), shape.items, shape.extra):
        if below is not None:
            yield from needed(below)


def test_kinds_depend_on_each_other_in_one_direction() -> None:
    graph = {str(kind): {str(each) for each in needed(shape_of(str(kind)))} for kind in Kind}
    for kind in GVC_SCOPED:
        graph[str(kind)].add(str(Kind.GVC))
    # A GVC's variables may name secrets; volume sets live in GVCs, so there they are refused.
    graph[str(Kind.GVC)] -= {str(Kind.VOLUMESET)}
    assert set(TopologicalSorter(graph).static_order()) >= {str(kind) for kind in Kind}
    assert graph["workload"] >= {"gvc", "identity", "secret", "volumeset"}
