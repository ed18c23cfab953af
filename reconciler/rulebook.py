"""Every rule that a finding can name, from every stage of the line."""

from __future__ import annotations

from functools import cache

from reconciler import settings
from reconciler.documents import rules as reading
from reconciler.documents.schema import validator
from reconciler.manifests import assembly, decoder, reference_check
from reconciler.manifests.rules import rules
from reconciler.manifests.rules.registry import CHECKS
from reconciler.manifests.rules.schema import containers, envelope, options, others
from reconciler.model import rule
from reconciler.model.rule import Rule
from reconciler.planning import steps
from reconciler.sops.rules import RULES as SECRET_RULES
from reconciler.source import changes

_MANIFESTS = "Manifests"
_CONTAINERS = "Containers"
_WORKLOADS = "Workloads, GVCs and volume sets"
_OTHERS = "Other kinds"
_BETWEEN = "Between resources"
_MODULES = {
    _MANIFESTS: {"kind.tags"},
    _CONTAINERS: {
        "container.containers",
        "container.images",
        "container.resources",
        "container.ports",
        "container.probes",
        "container.lifecycle",
        "container.secrets",
        "container.mounts",
        "container.buckets",
        "container.env",
        "container.variables",
    },
    _WORKLOADS: {
        "workload.options",
        "workload.autoscaling",
        "workload.cron",
        "workload.rollout",
        "workload.security",
        "workload.firewall",
        "kind.gvcs",
        "kind.volumesets",
        "kind.queries",
    },
}
"""Modules of generators by the section that their rules are told in."""


@cache
def rulebook() -> dict[str, Rule]:
    """All rules by id. Raises ValueError where two have one id."""
    return rule.rulebook(each for section in sections().values() for each in section)


@cache
def sections() -> dict[str, tuple[Rule, ...]]:
    """All rules by what they are about, in the order in which a revision meets them."""
    written = {
        "Files in the repository": changes.RULES,
        "Reading YAML": reading.RULES,
        _MANIFESTS: (*decoder.RULES, *assembly.RULES, *envelope.SCHEMA_RULES),
        "Fields": validator.RULES,
        _CONTAINERS: containers.SCHEMA_RULES,
        _WORKLOADS: options.SCHEMA_RULES,
        _OTHERS: others.SCHEMA_RULES,
        _BETWEEN: reference_check.RULES,
        "Encrypted secrets": SECRET_RULES,
        "Against what is applied": steps.RULES,
        "Settings": settings.RULES,
    }
    named = {each.id for section in written.values() for each in section}
    homes = {name: home for name, home in _homes().items() if name not in named}
    return {
        title: (*section, *(rules()[name] for name, home in homes.items() if home == title))
        for title, section in written.items()
    }


def _homes() -> dict[str, str]:
    """The section of each rule that is a generator."""
    rules()
    entries = (entry for entries in CHECKS.values() for entry in entries)
    return {
        entry.rule.id: _home(entry.check.__module__.removeprefix("reconciler.manifests.rules.")) for entry in entries
    }


def _home(module: str) -> str:
    if module.startswith("cross."):
        return _BETWEEN
    return next((title for title, modules in _MODULES.items() if module in modules), _OTHERS)
