"""The constraints of the platform, one rule each, found by walking the folders of this package.

A folder is a section of docs/rules.md. Some rules are in the schemas; ``schema`` has their texts.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import msgspec

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.registry import CHECKS, CROSS_CHECKS, RULES, TRIVIAL, CrossCheck, RuleEntry, Section
from reconciler.model.key import Kind
from reconciler.model.kinds.base import Envelope
from reconciler.model.kinds.table import view_of
from reconciler.model.resource import LookupRequest
from reconciler.model.rule import Rule


class Rules(msgspec.Struct, frozen=True):
    """The rules for documents of one kind, and the typed view that they check."""

    view: type[Envelope]
    entries: tuple[RuleEntry, ...]


@cache
def rules_of(kind: Kind) -> Rules:
    """The rules for documents of ``kind``."""
    rule_modules()
    return Rules(view_of(kind), tuple(CHECKS[kind]))


def cross_check_of(name: str) -> CrossCheck:
    """The function that answers the questions of the rule ``name``."""
    rule_modules()
    return CROSS_CHECKS[name]


def cross_check_rules() -> frozenset[str]:
    """Ids of the rules that check other resources."""
    rule_modules()
    return frozenset(CROSS_CHECKS)


def trivially_passes(question: LookupRequest, world: RuleContext) -> bool:
    """Whether ``question`` certainly has no finding, whichever resource asks; False if it may have one."""
    rule_modules()
    predicate = TRIVIAL.get(question.rule)
    return predicate is not None and predicate(question, world)


def load_rules() -> dict[str, Rule]:
    """Every rule that is a generator, by id."""
    rule_modules()
    return RULES


@cache
def rule_modules() -> tuple[ModuleType, ...]:
    """Every module in the folders of this package, in order of its name. A module registers its rules when it loads."""
    module_infos = walk_packages(__path__, f"{__name__}.")
    names = sorted(
        module_info.name
        for module_info in module_infos
        if not module_info.ispkg and module_info.name.count(".") > __name__.count(".") + 1
    )
    return tuple(import_module(name) for name in names)


def schema_rules() -> dict[Rule, Section]:
    """Every rule that a schema names, with its section."""
    module_types = (module for module in rule_modules() if hasattr(module, "SCHEMA_RULES"))
    return {rule: _find_section(module) for module in module_types for rule in module.SCHEMA_RULES}


def generated_rules() -> dict[Rule, Section]:
    """Every rule that is a generator, with its section."""
    homes = {module.__name__: _find_section(module) for module in rule_modules()}
    modules = {entry.rule: entry.check.__module__ for entries in CHECKS.values() for entry in entries}
    return {rule: homes[module] for rule, module in modules.items() if module in homes}


def _find_section(module: ModuleType) -> Section:
    """The section of the rules of ``module``, set by the module or by its folder."""
    folder = import_module(module.__name__.rpartition(".")[0])
    section: Section = getattr(module, "SECTION", None) or folder.SECTION
    return section
