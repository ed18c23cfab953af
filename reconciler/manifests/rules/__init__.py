"""The constraints of the platform, a rule each; those that a schema can say stand there and are named in ``schema``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.registry import CHECKS, CROSS_CHECKS, RULES, TRIVIAL, CrossCheck, Entry
from reconciler.model.key import Kind
from reconciler.model.kinds.base import Envelope
from reconciler.model.resource import LookupRequest
from reconciler.model.rule import Rule


class Area(NamedTuple):
    """Where a kind's view is (module and class) and which modules below this one hold its rules."""

    view: tuple[str, str]
    modules: tuple[str, ...]


_ENV = ("container.env", "container.variables")
_CONTAINERS = (
    "container.containers",
    "container.images",
    "container.resources",
    "container.ports",
    "container.probes",
    "container.lifecycle",
    "container.secrets",
    "container.mounts",
    "container.buckets",
)
_OPTIONS = (
    "workload.options",
    "workload.autoscaling",
    "workload.cron",
    "workload.rollout",
    "workload.security",
    "workload.firewall",
)
_NEIGHBOURS = ("cross.secrets", "cross.policies", "cross.workloads")

AREAS: dict[Kind, Area] = {
    Kind.ORG: Area(("org", "Org"), ("cross.secrets",)),
    Kind.CLOUDACCOUNT: Area(("cloudaccount", "CloudAccount"), ("cross.secrets",)),
    Kind.DOMAIN: Area(("domain", "Domain"), ("kind.domains", "cross.domains", "cross.secrets")),
    Kind.GROUP: Area(("group", "Group"), ("kind.builtin", "kind.queries")),
    Kind.IDENTITY: Area(("identity", "Identity"), ("kind.identities",)),
    Kind.LOCATION: Area(("location", "Location"), ("kind.locations",)),
    Kind.POLICY: Area(("policy", "Policy"), ("kind.policies", "kind.builtin", "kind.queries")),
    Kind.SECRET: Area(("secret", "Secret"), ("kind.secrets",)),
    Kind.VOLUMESET: Area(("volumeset", "VolumeSet"), ("kind.volumesets", "workload.cron")),
    Kind.GVC: Area(("gvc", "Gvc"), (*_ENV, "kind.gvcs", "kind.queries", "cross.secrets", "cross.gvcs")),
    Kind.WORKLOAD: Area(("workload", "Workload"), (*_CONTAINERS, *_ENV, *_OPTIONS, *_NEIGHBOURS)),
}
"""Loaded when the first manifest of the kind is read. A kind that is not here has no rules of its own."""

EVERYWHERE = ("kind.tags",)
"""Modules whose rules hold for every kind."""


class Rules(NamedTuple):
    """What a document of one kind is held to, and the view that it is looked at through."""

    view: type[Envelope]
    entries: tuple[Entry, ...]


@cache
def rules_of(kind: Kind) -> Rules:
    """The rules that a document of ``kind`` is held to."""
    area = AREAS.get(kind)
    _load((*EVERYWHERE, *(area.modules if area else ())))
    return Rules(_view(area) if area else Envelope, tuple(CHECKS[kind]))


def cross_check_of(name: str) -> CrossCheck:
    """What answers the questions of the rule ``name``."""
    _load_all()
    return CROSS_CHECKS[name]


def cross_check_rules() -> frozenset[str]:
    """Ids of the rules that look at neighbours."""
    _load_all()
    return frozenset(CROSS_CHECKS)


def trivially_passes(question: LookupRequest, world: RuleContext) -> bool:
    """Whether nothing has to be said to ``question``, whoever asks; where it is not, there may be something."""
    _load_all()
    found = TRIVIAL.get(question.rule)
    return found is not None and found(question, world)


def rules() -> dict[str, Rule]:
    """Every rule that is a generator, by id."""
    _load_all()
    return RULES


def _view(area: Area) -> type[Envelope]:
    module, name = area.view
    view: type[Envelope] = getattr(import_module(f"reconciler.model.kinds.{module}"), name)
    return view


@cache
def _load_all() -> None:
    _load(EVERYWHERE)
    for area in AREAS.values():
        _load(area.modules)


def _load(modules: tuple[str, ...]) -> None:
    for module in modules:
        import_module(f"{__name__}.{module}")
