"""Findings as a report in the form of JUnit, which most CI systems show beside their own tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from xml.etree import ElementTree

from reconciler.model.finding import Finding, Severity

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def build_junit_report(findings: Iterable[Finding]) -> str:
    """Return the XML: a suite for each file with findings, and a case for each; only errors are failures."""
    top = ElementTree.Element("testsuites", name="reconciler validate")
    for path, entries in groupby(findings, lambda finding: finding.path):
        of_file = list(entries)
        failures = str(sum(finding.severity is Severity.ERROR for finding in of_file))
        suite = _add_element(top, "testsuite", name=path, tests=str(len(of_file)), failures=failures)
        for finding in of_file:
            _add_case(suite, finding)
    if not len(top):
        suite = _add_element(top, "testsuite", name="manifests", tests="1", failures="0")
        _add_element(suite, "testcase", classname="manifests", name="no findings")
    ElementTree.indent(top)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(top, encoding="unicode")}\n'


def _add_case(suite: ElementTree.Element, finding: Finding) -> None:
    place = f"{finding.path}:{finding.line}:{finding.column}"
    case = _add_element(suite, "testcase", classname=finding.path, name=f"{finding.rule} at {place}")
    text = f"{place}: {finding.severity}: {finding.message}"
    if finding.suggestion:
        text += f"\n{finding.suggestion}"
    if finding.severity is Severity.ERROR:
        _add_element(case, "failure", text, message=finding.message, type=finding.rule)
    else:
        _add_element(case, "system-out", text)


def _add_element(parent: ElementTree.Element, tag: str, text: str = "", /, **attributes: str) -> ElementTree.Element:
    cleaned = {name: _clean_text(value) for name, value in attributes.items()}
    element = ElementTree.SubElement(parent, tag, cleaned)
    if text:
        element.text = _clean_text(text)
    return element


def _clean_text(text: str) -> str:
    """``text`` without what no XML may contain, also not escaped."""
    return _NOT_IN_XML.sub("\ufffd", text)
