"""The outer form of PEM texts; the bytes inside are not checked."""

from __future__ import annotations

_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"


def fault_in(text: str, ending: str) -> str:
    """Why ``text`` is not PEM with a block whose label ends with ``ending``; "" if it is.

    The answer quotes nothing of ``text``, which may be a secret. Its time is linear.
    """
    label, size = "", 0
    labels: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith(_BEGIN) and line.endswith(_DASHES):
            if label:
                return "a block begins before the one above it ends"
            label, size = line[len(_BEGIN) : -len(_DASHES)], 0
        elif line.startswith(_END):
            if not label or line != f"{_END}{label}{_DASHES}":
                return "an END line does not fit the BEGIN line above it"
            if not size or size % 4:
                return "a block is empty or cut short"
            labels.append(label)
            label = ""
        elif label and ":" not in line:
            if not _BASE64.issuperset(line):
                return "a block has characters that are not base64"
            size += len(line)
    if label:
        return "a block has no END line"
    if not labels:
        return "it has no BEGIN line"
    return "" if any(each.endswith(ending) for each in labels) else "it contains another block"
