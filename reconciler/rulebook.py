"""All rules that findings can name, from every stage of the pipeline."""

from __future__ import annotations

from functools import cache

from reconciler import settings
from reconciler.documents import rules as reading
from reconciler.documents.schema import validator
from reconciler.manifests import assembly, decoder, reference_check
from reconciler.manifests.rules import generated_rules, schema_rules
from reconciler.manifests.rules.registry import Section
from reconciler.model import rule
from reconciler.model.rule import Rule
from reconciler.planning import steps
from reconciler.sops.rules import RULES as SECRET_RULES
from reconciler.source import changes, repository_settings


@cache
def load_rulebook() -> dict[str, Rule]:
    """All rules by id. Raises ValueError if two have the same id."""
    return rule.build_rulebook(entry for section in load_sections().values() for entry in section)


@cache
def load_sections() -> dict[str, tuple[Rule, ...]]:
    """All rules by section, in the order in which a revision is checked."""
    written: dict[str, tuple[Rule, ...]] = {
        "Files in the repository": changes.RULES,
        "Reading YAML": reading.RULES,
        Section.MANIFESTS: (*decoder.RULES, *assembly.RULES, *repository_settings.RULES),
        "Fields": validator.RULES,
        Section.CONTAINERS: (),
        Section.WORKLOADS: (),
        Section.OTHERS: (),
        Section.BETWEEN: reference_check.RULES,
        "Encrypted secrets": SECRET_RULES,
        "Against what is applied": steps.RULES,
        "Settings": settings.RULES,
    }
    homes = schema_rules() | generated_rules()
    return {
        str(title): (*section, *(rule for rule, home in homes.items() if home == title))
        for title, section in written.items()
    }
