"""The rules a file can break before any schema looks at it."""

from __future__ import annotations

RULES: dict[str, str] = {
    "alias-cycle": "An alias stands inside the very node that it names.",
    "ambiguous-scalar": "A plain value that YAML 1.1 and YAML 1.2 read differently, such as no, on, 017 or 12:30.",
    "control-character": "A character that is neither printable nor a tab or line break, raw or as an escape.",
    "duplicate-key": "A mapping gives the same key twice.",
    "encoding": "The file is not UTF-8 text.",
    "key-type": "A mapping key is not text.",
    "merge-key": "The merge key << is given something that is not a mapping or a list of mappings.",
    "nan": "A number is infinite or not a number.",
    "number-range": "A number is too large for 64 bits.",
    "syntax": "The file is not well-formed YAML.",
    "tab": "A tab stands where only spaces may indent.",
    "tag-mismatch": "A tag such as !!int is on a value that it does not fit.",
    "too-deep": "Lists and mappings are nested deeper than the limit.",
    "too-large": "The file or one of its documents is larger than the limit.",
    "too-many-aliases": "A document uses more aliases than the limit.",
    "too-many-directives": "The file declares more tag handles than the limit.",
    "too-many-documents": "The file holds more documents than the limit.",
    "too-many-nodes": "A document has more values than the limit, aliases counted as what they stand for.",
    "unknown-alias": "An alias names an anchor that its document has not defined before it.",
    "unknown-tag": "A tag other than those of YAML's core schema.",
}
