"""Every rule that a finding can name, from every stage of the line."""

from __future__ import annotations

from functools import cache

from reconciler import settings
from reconciler.documents import rules as reading
from reconciler.documents import validation
from reconciler.manifests import assembly, crossing, decoder
from reconciler.manifests.rules import rules, schema_containers, schema_envelope, schema_options, schema_others
from reconciler.manifests.rules.registry import CHECKS
from reconciler.model import rule
from reconciler.model.rule import Rule
from reconciler.planning import steps
from reconciler.sops.rules import RULES as SECRET_RULES
from reconciler.source import comparison

_MANIFESTS = "Manifests"
_CONTAINERS = "Containers"
_WORKLOADS = "Workloads, GVCs and volume sets"
_OTHERS = "Other kinds"
_BETWEEN = "Between resources"
_MODULES = {
    _MANIFESTS: {"tags"},
    _CONTAINERS: {"containers", "images", "resources", "ports", "probes", "lifecycle", "secrets_used", "mounts",
                  "buckets", "env", "variables"},
    _WORKLOADS: {"options", "autoscaling", "cron", "rollout", "security", "firewall", "gvcs", "volumesets", "queries"},
}  # fmt: skip
"""Modules of generators by the section that their rules are told in."""


@cache
def rulebook() -> dict[str, Rule]:
    """All rules by id. Raises ValueError where two have one id."""
    return rule.rulebook(each for section in sections().values() for each in section)


@cache
def sections() -> dict[str, tuple[Rule, ...]]:
    """All rules by what they are about, in the order in which a revision meets them."""
    written = {
        "Files in the repository": comparison.RULES,
        "Reading YAML": reading.RULES,
        _MANIFESTS: (*decoder.RULES, *assembly.RULES, *schema_envelope.SCHEMA_RULES),
        "Fields": validation.RULES,
        _CONTAINERS: schema_containers.SCHEMA_RULES,
        _WORKLOADS: schema_options.SCHEMA_RULES,
        _OTHERS: schema_others.SCHEMA_RULES,
        _BETWEEN: crossing.RULES,
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
    return {entry.rule.id: _home(entry.check.__module__.rpartition(".")[2]) for entry in entries}


def _home(module: str) -> str:
    if module.startswith("across_"):
        return _BETWEEN
    return next((title for title, modules in _MODULES.items() if module in modules), _OTHERS)
