"""The constraints of the platform, a rule each; those that a schema can say stand there and are named in ``schema``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple

from reconciler.manifests.rules.registry import ANSWERS, CHECKS, QUIET, RULES, Answer, Entry
from reconciler.manifests.rules.world import World
from reconciler.model.key import Kind
from reconciler.model.resource import Question
from reconciler.model.rule import Rule
from reconciler.model.view import Envelope


class Area(NamedTuple):
    """Where a kind's view is (module and class) and which modules beside this one hold its rules."""

    view: tuple[str, str]
    modules: tuple[str, ...]


_ENV = ("env", "variables")
_CONTAINERS = (
    "containers", "images", "resources", "ports", "probes", "lifecycle", "secrets_used", "mounts", "buckets",
)  # fmt: skip
_OPTIONS = ("options", "autoscaling", "cron", "rollout", "security", "firewall")
_NEIGHBOURS = ("across_secrets", "across_policies", "across_workloads")

AREAS: dict[Kind, Area] = {
    Kind.ORG: Area(("org", "Org"), ("across_secrets",)),
    Kind.CLOUDACCOUNT: Area(("cloudaccount", "CloudAccount"), ("across_secrets",)),
    Kind.DOMAIN: Area(("domain", "Domain"), ("domains", "across_domains", "across_secrets")),
    Kind.GROUP: Area(("group", "Group"), ("builtin", "queries")),
    Kind.IDENTITY: Area(("identity", "Identity"), ("identities",)),
    Kind.LOCATION: Area(("location", "Location"), ("locations",)),
    Kind.POLICY: Area(("policy", "Policy"), ("policies", "builtin", "queries")),
    Kind.SECRET: Area(("secret", "Secret"), ("secrets",)),
    Kind.VOLUMESET: Area(("volumeset", "VolumeSet"), ("volumesets", "cron")),
    Kind.GVC: Area(("gvc", "Gvc"), (*_ENV, "gvcs", "queries", "across_secrets", "across_gvcs")),
    Kind.WORKLOAD: Area(("workload", "Workload"), (*_CONTAINERS, *_ENV, *_OPTIONS, *_NEIGHBOURS)),
}
"""Loaded when the first manifest of the kind is read. A kind that is not here has no rules of its own."""

EVERYWHERE = ("tags",)
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


def answer_of(name: str) -> Answer:
    """What answers the questions of the rule ``name``."""
    _load_all()
    return ANSWERS[name]


def quiet(question: Question, world: World) -> bool:
    """Whether nothing has to be said to ``question``, whoever asks; where it is not, there may be something."""
    _load_all()
    found = QUIET.get(question.rule)
    return found is not None and found(question, world)


def rules() -> dict[str, Rule]:
    """Every rule that is a generator, by id."""
    _load_all()
    return RULES


def _view(area: Area) -> type[Envelope]:
    module, name = area.view
    view: type[Envelope] = getattr(import_module(f"reconciler.model.{module}"), name)
    return view


@cache
def _load_all() -> None:
    _load(EVERYWHERE)
    for area in AREAS.values():
        _load(area.modules)


def _load(modules: tuple[str, ...]) -> None:
    for module in modules:
        import_module(f"{__name__}.{module}")
