"""The metrics of scraped containers, as values: what an engine passes to the page for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

import msgspec

GAP = "\0"
"""Stands in each sample for the labels of its target; the input cannot contain it."""

REPORT_PREFIX = "platform_"
"""The beginning of metric names that belong to the platform: they are dropped from what containers expose."""

SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
"""The ends of the names of samples that belong to a metric of the type."""


class Family(msgspec.Struct, frozen=True, gc=False):
    """The samples of one metric of a target, in the text format 0.0.4.

    ``type`` is "untyped" if the target declares none. ``help`` is escaped as in the format, "" if there is none.
    ``samples`` are whole lines of UTF-8: ``name{GAP}`` or ``name{GAP,own="labels"}``, then the value, and the time if
    the target wrote one.
    """

    samples: bytes
    type: str = "untyped"
    help: str = ""


class TargetMetrics(msgspec.Struct, frozen=True):
    """The last scrape of a container, which took ``seconds``.

    ``labels`` is the text of the labels that all its series get. ``families`` are by name, and empty if the scrape
    failed; ``error`` is then why, "" otherwise. ``size`` is in bytes, ``samples`` counts lines.
    """

    labels: str
    families: Mapping[str, Family] = {}
    error: str = ""
    seconds: float = 0.0
    size: int = 0
    samples: int = 0


@runtime_checkable
class SupportsMetrics(Protocol):
    """An engine that scrapes the metrics of its workloads."""

    def metrics(self) -> Iterable[TargetMetrics]:
        """The last scrape of each running container that declares metrics."""


def label_text(labels: Mapping[str, str]) -> str:
    """``org="acme",gvc="shop"``, with escaped values."""
    return ",".join(f'{name}="{_escape_label_value(value)}"' for name, value in labels.items())


def _escape_label_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace(GAP, "")
