"""What a caller may see of a change: the findings about it, and the documents in its files.

A finding or a diff can name other resources. Those that the caller may not view are left out, so that an answer never
shows which ones exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec
import yaml

from reconciler.changes.text import pick_documents, read_documents, split_documents
from reconciler.model.finding import Finding
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.rulebook import load_rulebook

Sees = Callable[[Key], bool]
"""Whether the caller may view a resource."""


def sees_everything(_: Key) -> bool:
    """What a caller who may view all resources sees: nothing has to be searched for what is hidden."""
    return True


_NAMED = re.compile(rf"(?<![\w/])(?:/org/[^\s/]+/|//)?((?:gvc/[^\s/,;]+/)?(?:{'|'.join(KINDS)})/[^\s,;:?'\"`)\]]+)")
"""Every resource that a message names: as a key, or by a link."""
_HIDDEN = "a resource that you may not view would break the rule"


def visible_findings(findings: Iterable[Finding], paths: Collection[str], sees: Sees) -> list[Finding]:
    """``findings`` as a caller who ``sees`` resources may read them; ``paths`` are the files of the change.

    One about a hidden resource has neither its place nor its words. One that only names a hidden resource has the text
    of its rule. Equal ones are one.
    """
    return list(dict.fromkeys(_redact_finding(finding, paths, sees) for finding in findings))


def _redact_finding(finding: Finding, paths: Collection[str], sees: Sees) -> Finding:
    subject = _parse_key(finding.key) if finding.key else None
    is_shown = sees(subject) if subject is not None else finding.path in paths
    if not is_shown:
        message = f"{_HIDDEN} {finding.rule}"
        return msgspec.structs.replace(finding, path="", line=0, column=0, message=message, suggestion="", key="")
    gvc = subject.gvc if subject is not None else ""
    if all(map(sees, _find_named_keys(f"{finding.message} {finding.suggestion}", gvc))):
        return finding
    rule = load_rulebook().get(finding.rule)
    return msgspec.structs.replace(finding, message=rule.what if rule else finding.rule, suggestion="")


def _find_named_keys(text: str, gvc: str) -> Iterable[Key]:
    """The resources that ``text``, about one of ``gvc``, names; ``NAME`` stands for any."""
    for name in _NAMED.findall(text):
        key = _parse_key(name.rstrip("."), gvc)
        if key is not None and key.name != "NAME":
            yield key


def _parse_key(name: str, gvc: str = "") -> Key | None:
    """The key that ``name`` is, or the end of a link, which may leave out ``gvc``; None if it is neither."""
    parts = name.split("/")
    if len(parts) == 4 and parts[0] == Kind.GVC:
        parts = [parts[2], parts[1], parts[3]]
    kind = KINDS.get(parts[0])
    if kind in GVC_SCOPED and len(parts) == 2 and gvc:
        parts.insert(1, gvc)
    if kind is None or len(parts) != (3 if kind in GVC_SCOPED else 2):
        return None
    return Key(kind, parts[1] if len(parts) == 3 else "", parts[-1])


def visible_text(text: str, written: Collection[Key], sees: Sees) -> str:
    """``text`` of a file without the documents that the caller does not see; ``written`` are those of the change.

    A document without a GVC is in that of the directory, which is known if one of ``written`` is in this file.
    """
    if sees is sees_everything:
        return text
    try:
        documents = read_documents(text)
    except yaml.YAMLError:  # nothing is known of it, so all of it is hidden
        return ""
    homes = {key.gvc for key in written if key.gvc}
    gvc = homes.pop() if len(homes) == 1 else ""
    shown = [_is_visible(document, gvc, sees) for document in documents]
    if all(shown):
        return text
    if (in_json := pick_documents(text, shown)) is not None:
        return in_json
    parts = split_documents(text)
    ends = [*shown[1:], True]
    return "".join(
        part if is_next_shown else _without_last_comment(part)
        for part, is_shown, is_next_shown in zip(parts, shown, ends, strict=False)
        if is_shown
    )


def _without_last_comment(part: str) -> str:
    """``part`` of a text without the comment at its end, which is about the document that follows."""
    lines = part.splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return "".join(lines)


def _is_visible(document: Any, gvc: str, sees: Sees) -> bool:
    if not isinstance(document, Mapping):
        return False
    kind, name = KINDS.get(str(document.get("kind"))), document.get("name")
    if kind is None or not isinstance(name, str):
        return False
    scope = document.get("gvc", gvc) if kind in GVC_SCOPED else ""
    return isinstance(scope, str) and (bool(scope) or kind not in GVC_SCOPED) and sees(Key(kind, scope, name))
