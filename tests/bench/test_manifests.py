"""The benchmark's repositories: shaped as published ones, the same each time, and without a fault."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from reconciler.manifests.normalize import ManifestContext
from reconciler.pipeline.externals import ExternalResources
from reconciler.review.folder import check_folder
from tests.bench import large_gvc, manifests
from tests.bench.generate import FIXTURES, commit_count, generate

KINDS = {"workload": 32, "secret": 19, "identity": 10, "policy": 10, "gvc": 9, "volumeset": 7, "domain": 6}
"""Percent of the published manifests; the rest is of other kinds."""
SHAPES = {"empty": 47, "'": 24, '"': 20, "block": 11, "flow": 3, "foreign": 1}
NEAR = 3
"""Percentage points that a share may be off."""


@pytest.fixture(scope="module")
def sample() -> list[tuple[str, str]]:
    return list(manifests.files(500))


def test_files_have_the_shapes_of_published_ones(sample: list[tuple[str, str]]) -> None:
    found = Counter(shape for _, text in sample for shape in set(shapes(text)))
    assert shares(found, len(sample)) == pytest.approx(SHAPES, abs=NEAR)


def test_kinds_have_the_shares_of_published_ones(sample: list[tuple[str, str]]) -> None:
    found = Counter(text.partition("\n")[0].removeprefix("kind: ") for _, text in sample)
    rest = {kind: found.pop(kind) for kind in found.keys() - KINDS.keys()}
    assert shares(found, len(sample)) == pytest.approx(KINDS, abs=NEAR)
    assert len(rest) >= 5


def test_most_files_are_small_and_workloads_are_the_bulk(sample: list[tuple[str, str]]) -> None:
    sizes = [len(text.encode()) for _, text in sample]
    workloads = [len(text.encode()) for _, text in sample if text.startswith("kind: workload")]
    assert sum(size < 1024 for size in sizes) > 0.6 * len(sizes)
    assert 1_400 < sum(workloads) / len(workloads) < 1_700
    assert sum(workloads) > 0.6 * sum(sizes)


@pytest.mark.parametrize(
    ("fixture", "count"), [("published", 500), ("published", 130), ("large-gvc", 50), ("documents", 50)]
)
def test_validate_finds_nothing(fixture: str, count: int, tmp_path: Path) -> None:
    files = dict(FIXTURES[fixture](count))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    context = ManifestContext("acme", secret_key=b"only looked at", secrets="any")
    checked = check_folder(tmp_path, context, ExternalResources(settings_unknown=True))
    assert checked.findings == []
    assert checked.resources >= count


def test_equal_numbers_give_equal_commits_and_a_change_counts_up(tmp_path: Path) -> None:
    for name in ("one", "two"):
        generate(tmp_path / name, "large-gvc", 3)
    pattern = r"image: \S+:\d+\.\d+\."
    first, second = (commit_count(tmp_path / name, large_gvc.workload_file(2), pattern) for name in ("one", "two"))
    assert first == second
    with pytest.raises(ValueError, match="no such text"):
        commit_count(tmp_path / "one", large_gvc.GVC_FILE, pattern)


def shares(found: Counter[str], count: int) -> dict[str, float]:
    """Counts as percent."""
    return {name: 100 * number / count for name, number in found.items()}


def shapes(text: str) -> Iterator[str]:
    """What a file has besides plain lines."""
    if not text.isascii():
        yield "foreign"
    events = list(yaml.parse(text, Loader=yaml.SafeLoader))
    for event, after in itertools.pairwise(events):
        if isinstance(event, yaml.ScalarEvent):
            if event.style:
                yield {"'": "'", '"': '"', "|": "block", ">": "block"}[event.style]
        elif isinstance(event, yaml.CollectionStartEvent) and event.flow_style:
            yield "empty" if isinstance(after, yaml.CollectionEndEvent) else "flow"
