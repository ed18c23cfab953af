"""Findings as SARIF 2.1.0, the format in which forges accept results of static analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

from reconciler import __version__
from reconciler.model.finding import Finding, Severity
from reconciler.model.rule import Rule
from reconciler.rulebook import load_rulebook

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTICE: "note"}


def build_sarif_run(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return one run with its rules and a result for each finding; paths are relative to ``%SRCROOT%``."""
    entries = list(findings)
    book = load_rulebook()
    names = sorted({finding.rule for finding in entries} & book.keys())
    driver = {
        "name": "reconciler",
        "semanticVersion": __version__,
        "rules": [_build_rule(book[name]) for name in names],
    }
    index = {name: number for number, name in enumerate(names)}
    seen: Counter[str] = Counter()
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_build_result(finding, index, seen) for finding in entries],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _build_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {
            "text": f"{rule.why}\nMore: reconciler explain {rule.id}",
            "markdown": f"{rule.why}\n\nMore: `reconciler explain {rule.id}`, or {rule.page}. Source: {rule.source}.",
        },
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _build_result(finding: Finding, index: dict[str, int], seen: Counter[str]) -> dict[str, Any]:
    words = f"{finding.message}; {finding.suggestion}" if finding.suggestion else finding.message
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(finding.path), "uriBaseId": "%SRCROOT%"}}
    if finding.line:
        location["region"] = {"startLine": finding.line, "startColumn": max(finding.column, 1)}
    listed = {"ruleIndex": index[finding.rule]} if finding.rule in index else {}
    return {
        "ruleId": finding.rule,
        **listed,
        "level": _LEVELS[finding.severity],
        "message": {"text": words},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"findingWithoutLine/v1": compute_fingerprint(finding, seen)},
    }


def compute_fingerprint(finding: Finding, seen: Counter[str]) -> str:
    """A hash that stays the same when a finding moves in its file; the order distinguishes equal findings in a file."""
    parts = "\0".join((finding.rule, finding.path, finding.key, finding.message))
    digest = blake2b(parts.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    seen[digest] += 1
    return f"{digest}:{seen[digest]}"
