"""Rules for a file as a whole, checked before its schema."""

from __future__ import annotations

from reconciler.documents.limits import LIMITS
from reconciler.model.rule import error_rule

_LIMITED = "Without a limit, a small file could keep the program busy for hours; no ordinary manifest comes near it."

RULES = (
    error_rule(
        "alias-cycle",
        "An alias is outside the node that it names.",
        "Written out, such a node would never end. Write the inner part out instead of naming the outer one.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "ambiguous-scalar",
        "YAML 1.1 and YAML 1.2 read every plain value alike; they differ on no, on, 017 or 12:30.",
        "One tool reads such a value as text, another as a boolean or a number. In quotes it is text for all tools; "
        "true, false and plain decimal numbers are the same for all.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "control-character",
        "A file has only printable characters, tabs and line breaks, both raw and in escapes (`\\t`, `\\n`, `\\r`).",
        "Reviewers do not see others, and some change what a terminal shows. In keys, line breaks and characters that "
        "are invisible or change the direction of text are refused too; in values they are escaped when shown.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "duplicate-key",
        "A mapping has each key once.",
        "Most readers keep the last value and silently drop the others, so part of the file has no effect.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "encoding",
        "A file is UTF-8 text.",
        "Any other encoding would be a guess, and a wrong guess changes names and values.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "key-type",
        "The keys of a mapping are text.",
        "Fields have names. In YAML a key such as 8080 or true is a number or a boolean; in quotes it is a name.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "merge-key",
        "The value of the merge key << is a mapping, or a list of mappings.",
        "It adds the fields of its value, mostly an alias; only mappings have fields.",
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
        "Some programs would round a larger one and others would not. If it is text, such as an account number, put it "
        "in quotes.",
        "docs/manifests.md#yaml",
    ),
    error_rule(
        "syntax",
        "A file is well-formed YAML, or JSON if its name says so.",
        "After a syntax error the structure is unknown, so the rest of the file is not checked.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "tab",
        "Lines are indented with spaces.",
        "YAML defines no width of a tab, so it allows none where indentation gives the structure.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "tag-mismatch",
        "A tag such as !!int fits its value.",
        "The value and its tag contradict each other; only one of them can be meant.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "template",
        "A manifest is YAML, not a template of it.",
        "The result of a template depends on values that are not in the file.",
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
        f"{_LIMITED} A file that is no manifest can be listed in .reconcilerignore.",
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
        "%TAG occurs at most 1,000 times in a file.",
        f"{_LIMITED} Only the core tags are supported anyway.",
        "docs/manifests.md#limits",
    ),
    error_rule(
        "too-many-documents",
        f"A file has at most {LIMITS.documents:,} documents.",
        _LIMITED,
        "docs/manifests.md#limits",
    ),
    error_rule(
        "too-many-nodes",
        f"A document has at most {LIMITS.nodes:,} values, each alias counted as if written out, and a file "
        f"{LIMITS.file_nodes:,} and {LIMITS.document_share:,} more for each of its documents.",
        _LIMITED,
        "docs/manifests.md#limits",
    ),
    error_rule(
        "unknown-alias",
        "An alias names an anchor that precedes it in the same document.",
        "Anchors do not reach from one document of a file into the next, so the alias has no value.",
        "https://yaml.org/spec/1.2.2/",
    ),
    error_rule(
        "unknown-tag",
        "A tag is one of YAML's core schema, such as !!str.",
        "Other tags have a meaning in one program only. Text that begins with an exclamation mark needs quotes.",
        "docs/manifests.md#yaml",
    ),
)
"""Rules about the file itself, whatever its kinds."""
