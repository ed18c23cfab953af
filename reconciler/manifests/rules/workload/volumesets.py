"""Rules for volume sets."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.volumeset import VolumeSet


@register_rule("volumeset-max-capacity", "docs/platform/volumeset.md#automatic-growth", Kind.VOLUMESET)
def growth_below_the_start(volumeset: VolumeSet) -> Iterator[Flaw]:
    """`maxCapacity` is at least `initialCapacity`.

    A volume never becomes smaller, so a lower limit would be exceeded from the beginning.
    """
    initial, most = volumeset.spec.initial_capacity, volumeset.spec.autoscaling.max_capacity
    if most is not None and most < initial:
        message = f"maxCapacity {most} is less than initialCapacity {initial}"
        hint = f"write at least {initial}"
        yield Flaw(("spec", "autoscaling", "maxCapacity"), message, hint, (("spec", "initialCapacity"),))
