"""docs/rules.md: every rule that a finding can name."""

from __future__ import annotations

from reconciler.documents import rules as reading
from reconciler.documents import validation
from reconciler.documents.limits import LIMITS
from reconciler.manifests import assembly, crossing, decoder
from reconciler.planning import steps
from reconciler.source import comparison
from tests.docs.tables import table

SECTIONS = {
    "Files in the repository": comparison.RULES,
    "Reading YAML": reading.RULES,
    "Fields": {
        "duplicate-name": "In the settings: two sources have the same name.",
        "status-branch": "In the settings: a source writes its status to a branch that another one writes or follows.",
        **validation.RULES,
    },
    "Manifests": {**decoder.RULES, **assembly.RULES},
    "Between resources": crossing.RULES,
    "Against what is applied": steps.RULES,
}
"""Heading → rules with what each says."""

NOTICES = frozenset({"server-owned-field"})
"""Rules that only point something out; all others are errors."""

REMEDIES = {
    "alias-cycle": "Write the inner part out instead of naming the outer one.",
    "ambiguous-scalar": "Write `true` or `false`, or a plain number; put text in quotes.",
    "bad-format": "Write it as the message says.",
    "bad-link": "Write `//KIND/NAME`, `//gvc/GVC/KIND/NAME` or the long form beginning with `/org/`.",
    "built-in-tag": "Leave it out; the message lists those that a manifest may carry.",
    "control-character": "Remove it.",
    "dependency-cycle": "Remove one of the links of the circle; the message names it whole.",
    "duplicate-key": "Keep one of the two.",
    "duplicate-name": "Give each source a name of its own.",
    "duplicate-resource": "Keep one of the two; the message names both places.",
    "encoding": "Save the file as UTF-8.",
    "exactly-one": "Keep one of the fields that the message lists.",
    "exclusive": "Keep one of the two.",
    "file-name": "Rename the file.",
    "gvc-ambiguous": "Write `gvc: NAME`, or give each GVC a directory of its own.",
    "gvc-missing": "Write `gvc: NAME`, or put the GVC's manifest beside it or above.",
    "immutable-field": 'Give the resource another name, or the tag `reconciler/allow-replace: "true"`.',
    "key-type": "Put the key in quotes.",
    "merge-key": "Give `<<` an alias of a mapping, or a list of such.",
    "missing-field": "Write the field.",
    "missing-reference": "Add what the link names, correct the link, or list it under `external` in the settings.",
    "nan": "Write a finite number.",
    "not-a-mapping": "Begin the document with `kind:`.",
    "not-allowed": "Take one of the values that the message lists, or a name that is not reserved.",
    "number-range": "Write a smaller number, or put it in quotes if it is text.",
    "out-of-bounds": "Stay within the bounds that the message names.",
    "protected-resource": "Remove the tag `platform/protected` first, or give the resource another name.",
    "server-owned-field": "Nothing breaks; leave the field out.",
    "status-branch": "Give each source a `status: {branch: …}` of its own.",
    "submodule": "Make it a source of its own, or name it in `.reconcilerignore`.",
    "symlink": "Commit the file itself, or name the link in `.reconcilerignore`.",
    "syntax": "Correct the YAML at that place.",
    "tab": "Indent with spaces.",
    "tag-mismatch": "Remove the tag, or write a value that fits it.",
    "too-deep": f"Nest at most {LIMITS.depth} levels.",
    "too-large": f"At most {LIMITS.document_bytes >> 20} MiB a document and {LIMITS.file_bytes >> 20} a file.",
    "too-many-aliases": f"Use at most {LIMITS.aliases:,} aliases a document.",
    "too-many-directives": "Remove the directives.",
    "too-many-documents": f"Split the file: at most {LIMITS.documents:,} documents.",
    "too-many-faults": f"Correct the {LIMITS.faults} faults that are listed; then the rest is looked at.",
    "too-many-nodes": f"Split the document: at most {LIMITS.nodes:,} values, aliases written out.",
    "unknown-alias": "Define the anchor earlier in the same document.",
    "unknown-field": "Correct the name (the message says the nearest) or remove the field.",
    "unknown-kind": "Correct the kind; the message says the nearest.",
    "unknown-tag": "Remove the tag, or put text that begins with `!` in quotes.",
    "volume-shrink": "Keep the size, or make a new volume set and copy.",
    "wrong-type": "Write a value of the type that the message names.",
}
"""Rule → what to do."""

HEAD = """\
# Rules

A finding names its rule, the file, line and column, what is wrong there and what to do about it. All findings of a
revision are told in one pass. An error refuses the revision as a whole, or with `onInvalid: skip` the files that it
is in; a notice changes nothing. `reconciler validate` exits with 1 only where there are errors.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for title, rules in SECTIONS.items():
        rows = (
            (f"`{rule}`", "notice" if rule in NOTICES else "error", rules[rule], REMEDIES[rule])
            for rule in sorted(rules)
        )
        parts.append(f"## {title}\n\n" + table(("Rule", "Severity", "What it says", "What to do"), rows))
    return "\n".join(parts)
