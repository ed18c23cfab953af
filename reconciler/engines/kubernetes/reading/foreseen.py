"""What a cluster will not enforce of a workload, as a plan says before anything is applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NoReturn

from reconciler.engines.kubernetes.desired import AppliedResource, DesiredObjects
from reconciler.engines.kubernetes.manifests import make_desired
from reconciler.engines.plugin import ForeseenLimitation
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.settings import Settings


def foresee_limitations(
    settings: Settings, records: Records, steps: Iterable[Step], engine: str
) -> list[ForeseenLimitation]:
    """The limitations that ``steps`` add to those of the recorded workloads; workloads with the same one share it.

    The cluster is not asked, so that a plan does not need it: what only some clusters serve counts as absent.
    """
    places = {name for name, bound in settings.locations.items() if bound.engine == engine}
    rendering = {name: make_desired(settings, records, name, _hide_secret) for name in sorted(places)}
    limitations = sorted(
        (message, step.location, step.key)
        for step in steps
        if step.key.kind is Kind.WORKLOAD and step.location in places and step.action is not Action.DELETE
        for message in _list_new(records, step, rendering[step.location])
    )
    return [
        ForeseenLimitation(message, location, tuple(key for _, _, key in members))
        for (message, location), members in groupby(limitations, key=lambda limitation: limitation[:2])
    ]


def _list_new(records: Records, step: Step, desired: DesiredObjects) -> Iterator[str]:
    past = records.applied.at(step.key, step.location)
    former: set[str] = set()
    if past is not None and past.engine == step.engine:
        former = set(desired.describe_limitations(AppliedResource(step.key, past.body, past.digest, past.version)))
    applied = AppliedResource(step.key, step.body, step.digest, step.version)
    return (sentence for sentence in desired.describe_limitations(applied) if sentence not in former)


def _hide_secret(key: Key) -> NoReturn:
    raise EngineError(f"a plan reads no values of {key}", reason=Reason.SECRET_UNAVAILABLE)
