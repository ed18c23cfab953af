"""The page of all targets, in Prometheus' text format 0.0.4: each metric once, with the samples of all targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reconciler.engines.target_metrics import GAP, REPORT_PREFIX, SUFFIXES, Family, TargetMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

UP, SECONDS, SAMPLES = (f"{REPORT_PREFIX}scrape_{name}" for name in ("up", "duration_seconds", "samples"))
"""The series about the scrapes. No container can have them, since names with this prefix are dropped."""

_HELP = {
    UP: "Whether the last scrape of the container succeeded.",
    SECONDS: "How long the last scrape of the container took.",
    SAMPLES: "The number of samples in the last scrape of the container.",
}


class _Group:
    """A metric of the page. Without a type it has no header, which Prometheus reads as untyped."""

    def __init__(self) -> None:
        self.type = ""
        self.help = ""
        self.parts: list[tuple[str, bytes]] = []

    def declare(self, kind: str, text: str) -> None:
        """Set the type and the help of the header."""
        self.type, self.help = kind, text

    def add(self, labels: str, samples: bytes) -> None:
        """Add the samples of a target."""
        self.parts.append((labels, samples))

    def lines(self, name: str, typed: bool) -> Iterator[bytes]:
        """Its lines, those of each target in one part."""
        if typed and self.help:
            yield f"# HELP {name} {self.help}\n".encode()
        if typed and self.type:
            yield f"# TYPE {name} {self.type}\n".encode()
        gap = GAP.encode()
        for labels, samples in self.parts:
            yield samples.replace(gap, labels.encode())


def render_page(targets: Iterable[TargetMetrics]) -> Iterator[bytes]:
    """The page, in parts; an empty part is an opportunity to do other work.

    Where targets disagree about the type of a metric, it has none, and each of its names stands alone.
    """
    members: dict[str, list[tuple[str, Family]]] = {}
    for target in targets:
        for name, family in (*_build_target_families(target), *target.families.items()):
            members.setdefault(name, []).append((target.labels, family))
        yield b""
    groups: dict[str, _Group] = {}
    for name, families in members.items():
        _add_families(groups, name, families)
    yield b""
    for name in sorted(groups):
        yield from groups[name].lines(name, typed=not _belongs_to_another(name, groups))


def _build_target_families(target: TargetMetrics) -> Iterator[tuple[str, Family]]:
    values = {UP: f"{int(not target.error)}", SECONDS: f"{target.seconds:.6g}", SAMPLES: f"{target.samples}"}
    for name, value in values.items():
        yield name, Family(f"{name}{{{GAP}}} {value}\n".encode(), "gauge", _HELP[name])


def _add_families(groups: dict[str, _Group], name: str, families: list[tuple[str, Family]]) -> None:
    if len({family.type for _, family in families}) == 1:
        group = groups.setdefault(name, _Group())
        group.declare(families[0][1].type, next((family.help for _, family in families if family.help), ""))
        for labels, family in families:
            group.add(labels, family.samples)
        return
    for labels, family in families:
        for text, samples in _by_name(family.samples).items():
            groups.setdefault(text, _Group()).add(labels, samples)


def _by_name(samples: bytes) -> dict[str, bytes]:
    """The lines of each name, such as ``x_sum`` and ``x_count`` of the summary x."""
    lines: dict[bytes, list[bytes]] = {}
    for line in samples.split(b"\n")[:-1]:
        lines.setdefault(line.partition(b"{")[0], []).append(line)
    return {name.decode(): b"\n".join((*name_lines, b"")) for name, name_lines in lines.items()}


def _belongs_to_another(name: str, groups: Mapping[str, _Group]) -> bool:
    """Whether ``name`` is that of a sample of a histogram or summary: strict parsers refuse a second header for it."""
    for suffix in ("_bucket", "_sum", "_count"):
        base = groups.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if base is not None and suffix in SUFFIXES.get(base.type, ()):
            return True
    return False
