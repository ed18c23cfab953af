"""What the engine needs of the cluster of each location, for `reconciler doctor`: that it answers, and the rights."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator

from reconciler.checks import Check, make_ok_check, make_problem, make_warning
from reconciler.clock import SystemClock
from reconciler.engines.kubernetes.access import ACCESS_REVIEW, Right, list_rights, make_reviews
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import ADDITIONAL, POD_METRICS, ObjectKind
from reconciler.errors import EngineError
from reconciler.settings import ClusterSettings, Settings

PATIENCE = 20.0
"""Seconds for all questions to one cluster."""

_ADVICE = "apply the ClusterRole that `reconciler render --access` prints"


def check_clusters(settings: Settings, engine: str) -> Iterator[Check]:
    """Check the cluster of each location that the settings bind to ``engine``."""
    for location, bound in sorted(settings.locations.items()):
        if bound.engine == engine:
            yield from asyncio.run(_check_cluster(location, bound.cluster))


async def _check_cluster(location: str, cluster: ClusterSettings) -> list[Check]:
    about = f"cluster of {location}"
    api = KubeApi(cluster, SystemClock())
    try:
        async with asyncio.timeout(PATIENCE):
            version = await api.read_version()
            missing = await _find_missing_rights(api)
            served = await _find_served(api)
    except TimeoutError:
        return [make_problem(about, f"{api.server} does not answer within {PATIENCE:.0f} s", "see whether it is up")]
    except EngineError as error:
        return [make_problem(about, str(error), "correct `cluster`, or see whether the cluster is up")]
    finally:
        await api.close()
    checks = list(_describe_missing(about, missing))
    optional = ", ".join(sorted(kind.kind for kind in served)) or "none of the optional kinds"
    if not checks:
        message = f"{api.server} answers, version {version[0]}.{version[1]}, and gives all rights; it serves {optional}"
        checks = [make_ok_check(about, message)]
    return checks


async def _find_missing_rights(api: KubeApi) -> dict[Right, list[str]]:
    reviews = list(make_reviews(list_rights()))
    answers = await asyncio.gather(*(api.create(review, ACCESS_REVIEW) for _, _, review in reviews))
    missing: defaultdict[Right, list[str]] = defaultdict(list)
    for (right, verb, _), answer in zip(reviews, answers, strict=True):
        if not answer.get("status", {}).get("allowed"):
            missing[right].append(verb)
    return missing


async def _find_served(api: KubeApi) -> list[ObjectKind]:
    kinds = (*ADDITIONAL, POD_METRICS)
    plurals = await asyncio.gather(*(api.read_served(kind.api_version) for kind in kinds))
    return [kind for kind, served in zip(kinds, plurals, strict=True) if kind.plural in served]


def _describe_missing(about: str, missing: dict[Right, list[str]]) -> Iterator[Check]:
    needed = [f"{'/'.join(verbs)} of {right}" for right, verbs in sorted(missing.items()) if not right.optional]
    if needed:
        yield make_problem(about, f"the daemon may not {', '.join(needed)}", _ADVICE)
    other = [f"{'/'.join(verbs)} of {right}" for right, verbs in sorted(missing.items()) if right.optional]
    if other:
        yield make_warning(about, f"the daemon may not {', '.join(other)}, so some views and commands fail", _ADVICE)
