"""Rules that a file can break before it is checked against a schema."""

from __future__ import annotations

from reconciler.documents.limits import LIMITS
from reconciler.model.rule import error_rule

_LIMITED = (
    "Without a bound a small file could keep the program busy for hours; no manifest that people write comes near."
)

RULES = (
    error_rule(
        "alias-cycle",
        "An alias stands outside of the node that it names.",
        "Written out, such a node would never end. Write the inner part out instead of naming the outer one.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "ambiguous-scalar",
        "No plain value is one that YAML 1.1 and YAML 1.2 read differently, such as no, on, 017 or 12:30.",
        "What one tool takes for text another takes for a boolean or a number, and each is sure of it. In quotes it is "
        "text to all; true, false and plain decimal numbers are the same to all.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "control-character",
        "A file has no characters but printable ones, tabs and line breaks, neither raw nor as an escape.",
        "Nobody sees them in a review, and some of them change what a terminal shows of the rest. In keys, characters "
        "that are invisible or change the direction of text are refused too; in values they are escaped when shown.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "duplicate-key",
        "A mapping gives each key once.",
        "Most readers keep the last value and drop the others in silence, so half of what is written has no effect.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "encoding",
        "A file is UTF-8 text.",
        "Any other encoding has to be guessed, and a wrong guess changes names and values.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "key-type",
        "The keys of a mapping are text.",
        "Fields have names. A key such as 8080 or true is a number or a boolean to YAML; in quotes it is a name.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "merge-key",
        "The merge key << is given a mapping, or a list of mappings.",
        "It takes over the fields of what it is given, mostly by an alias; nothing else has fields.",
        "https://yaml.org/type/merge.html",
    ),
    error_rule(
        "nan",
        "A number is finite.",
        "No field of the platform has a meaning for infinity, and JSON, which the platform speaks, has no way to "
        "write it.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "number-range",
        "A number fits into 64 bits.",
        "A larger one would be rounded by some programs on its way and not by others. If it is text, such as an "
        "account number, put it in quotes.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "syntax",
        "A file is well-formed YAML.",
        "From a mistake on, nobody can tell what belongs where, so the rest of the file is not looked at.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "tab",
        "Lines are indented with spaces.",
        "YAML knows no width of a tab, so it allows none where indentation says what belongs together.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "tag-mismatch",
        "A tag such as !!int is on a value that it fits.",
        "The value says one thing and its tag another; only one of them can be meant.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "template",
        "A manifest is YAML as it stands, and no template of it.",
        "What a template becomes depends on values that are not in the file.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "too-deep",
        f"Lists and mappings are nested at most {LIMITS.depth} levels deep.",
        _LIMITED,
        "docs/manifests.md#limits",
    ),
    error_rule(
        "too-large",
        f"A document has at most {LIMITS.document_bytes >> 20} MiB, a file at most {LIMITS.file_bytes >> 20}.",
        f"{_LIMITED} A file that is no manifest can be named in .reconcilerignore.",
        "docs/manifests.md#limits",
    ),
    error_rule(
        "too-many-aliases",
        f"A document uses at most {LIMITS.aliases:,} aliases.",
        _LIMITED,
        "docs/manifests.md#limits",
    ),
    error_rule(
        "too-many-directives",
        "A file mentions %TAG at most 1,000 times.",
        f"{_LIMITED} Tags other than the core ones are not known here anyway.",
        "docs/manifests.md#limits",
    ),
    error_rule(
        "too-many-documents",
        f"A file holds at most {LIMITS.documents:,} documents.",
        _LIMITED,
        "docs/manifests.md#limits",
    ),
    error_rule(
        "too-many-nodes",
        f"A document has at most {LIMITS.nodes:,} values, each alias counted as what it stands for, and a file "
        f"{LIMITS.file_nodes:,} and {LIMITS.document_share:,} more for each of its documents.",
        _LIMITED,
        "docs/manifests.md#limits",
    ),
    error_rule(
        "unknown-alias",
        "An alias names an anchor that stands before it in the same document.",
        "Anchors do not reach from one document of a file into the next, so the alias stands for nothing.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "unknown-tag",
        "A tag is one of YAML's core schema, such as !!str.",
        "Other tags mean something to one program only. Text that begins with an exclamation mark needs quotes.",
        "docs/manifests.md#yaml",
    ),
)
"""Rules about the file itself, whatever its kinds."""
