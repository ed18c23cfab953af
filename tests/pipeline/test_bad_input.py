"""Bad input gives a finding with its place in under a second, and what was applied stays applied."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import SourceEmpty
from tests.support.cases import cases
from tests.support.git import File, Submodule, Symlink
from tests.support.pace import in_time
from tests.support.pipeline import BASE, PipelineHarness, shown

SOUND = {"shop/gvc.yaml": BASE + "---\nkind: identity\nname: sound\n"}
BAD = "shop/bad.yaml"
SECONDS = 1.0


@pytest.fixture
def harness(tmp_path: Path) -> PipelineHarness:
    """A repository that is applied."""
    harness = PipelineHarness(tmp_path, dict(SOUND))
    harness.applied()
    return harness


def findings_in_time(harness: PipelineHarness) -> list[str]:
    """The findings of the newest commit, found in under a second of work."""
    prepared, _ = in_time(harness.prepare, SECONDS)
    assert prepared.plan is None
    return shown(prepared.findings)


def stays_applied_and_recovers(harness: PipelineHarness, *paths: str | bytes) -> None:
    """A run refuses the newest commit and changes nothing; the commit that takes the files away goes through."""
    before = harness.recorded()
    assert harness.apply().outcome == "refused"
    assert harness.recorded() == before
    assert harness.records.sources.get("main").commit != harness.repo.git("rev-parse", "main")  # type: ignore[union-attr]
    harness.commit(dict.fromkeys(paths))
    harness.applied()
    assert harness.recorded().keys() == before.keys()


@pytest.mark.parametrize("case", cases("bad-input/documents.yaml"))
def test_a_mistake_is_reported_with_its_place(case: dict[str, Any], harness: PipelineHarness) -> None:
    harness.commit({BAD: case["input"]})
    found = findings_in_time(harness)
    assert len(found) == len(case["findings"]), found
    for line, start in zip(found, case["findings"], strict=True):
        assert line.startswith(start)
    stays_applied_and_recovers(harness, BAD)


def identities(count: int) -> bytes:
    """One file with many sound documents."""
    return b"---\n".join(b"kind: identity\nname: i%d\n" % number for number in range(count))


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "100 MB": (lambda: b"# " + b"a" * 100_000_000, r"1:1 too-large \| the file has 95 MiB; at most 16 MiB are read"),
    "10,000 documents": (lambda: identities(10_000), r"\d+:\d+ too-many-documents"),
    "a document of 2 MB": (lambda: b"kind: identity\nname: i\ndescription: " + b"a" * 2_000_000, r"1:1 too-large"),
    "an alias bomb of 212 bytes": (
        lambda: (
            b"a: &a [b,b,b,b,b,b,b,b,b]\n"
            + b"".join(b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % ((n, n) + (n - 1,) * 7) for n in range(98, 104))
        ),
        r"[67]:\d+ too-many-nodes",
    ),
    "a slip in a large document": (
        lambda: (
            b"kind: workload\nname: web\nspec:\n  containers:\n  - nam: main\n    image: n:1\n    env:\n"
            + b"".join(b"    - {name: A%d, value: %s}\n" % (number, b"x" * 20) for number in range(18_000))
        ),
        r"5:5 missing-field",
    ),
    "300,000 brackets": (lambda: b"kind: " + b"[" * 300_000, r"1:\d+ too-deep"),
    "300,000 closed brackets": (lambda: b"kind: " + b"[" * 300_000 + b"]" * 300_000, r"1:\d+ too-deep"),
    "300,000 braces": (lambda: b"{a: " * 300_000, r"1:\d+ too-deep"),
    "300,000 indentations": (lambda: b"- " * 300_000, r"1:\d+ too-deep"),
    "a million items": (lambda: b"kind: [" + b"1," * 400_000 + b"]", r"1:\d+ too-many-nodes"),
    "invalid UTF-8": (lambda: b"kind: identity\nname: caf\xe9\n", r"2:10 encoding"),
    "UTF-16": (lambda: "kind: identity\nname: web\n".encode("utf-16"), r"1:1 encoding"),
    "UTF-16 without a mark": (lambda: "kind: identity\nname: web\n".encode("utf-16-le"), r"1:\d+ \S+"),
    "NUL": (lambda: b"kind: identity\nname: we\x00b\n", r"2:9 encoding"),
    "an escape": (lambda: b"kind: identity\nname: a\ndescription: \x1b[31m\n", r"3:14 control-character"),
    "binary": (lambda: bytes(range(256)) * 100, r"\d+:\d+ encoding"),
    "4,900 wrong documents": (lambda: b"---\n".join([b"kind: identity\nnam: x\n"] * 4_900), r"1:1 missing-field"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_costs_little_and_is_reported_with_its_place(name: str, harness: PipelineHarness) -> None:
    make, expected = HOSTILE[name]
    harness.repo.git("config", "pack.compression", "1")
    harness.commit({BAD: make()})
    found = findings_in_time(harness)
    assert re.match(rf"shop/bad\.yaml:{expected}", found[0]), found[0]
    assert len("".join(found[:1])) < 600
    stays_applied_and_recovers(harness, BAD)


def test_a_file_that_is_too_large_is_never_read(harness: PipelineHarness) -> None:
    harness.commit({BAD: b"# " + b"a" * 20_000_000})
    tracemalloc.start()
    try:
        harness.prepare()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


ODD: dict[str, tuple[dict[str | bytes, File], str]] = {
    "a symbolic link": ({"shop/link.yaml": Symlink("/etc/passwd")}, r"shop/link\.yaml:0:0 symlink"),
    "a submodule": ({"other": Submodule()}, r"other:0:0 submodule"),
    "a submodule like a file": ({"shop/other.yaml": Submodule()}, r"shop/other\.yaml:0:0 submodule"),
    "a newline in a name": ({"shop/a\nb.yaml": "kind: identity\nname: a\n"}, r"shop/a\\nb\.yaml:0:0 file-name"),
    "a name that is not UTF-8": ({b"shop/\xff.yaml": "kind: identity\nname: a\n"}, r"shop/\\xff\.yaml:0:0 file-name"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_entry_that_is_no_plain_file_is_reported(name: str, harness: PipelineHarness) -> None:
    files, expected = ODD[name]
    harness.commit(files)
    [found] = findings_in_time(harness)
    assert re.match(expected, found)
    stays_applied_and_recovers(harness, *files)


def test_all_faults_are_reported_at_once(harness: PipelineHarness) -> None:
    harness.commit(
        {
            "a.yaml": "kind: [",
            "b.yaml": b"\xff",
            "c.yaml": Symlink("x"),
            "shop/d.yaml": "kind: identity\nnam: x\n",
            "shop/e.yaml": "kind: identity\nname: sound\n",
        }
    )
    assert [line.split(" |")[0] for line in findings_in_time(harness)] == [
        "a.yaml:1:8 syntax",
        "b.yaml:1:1 encoding",
        "c.yaml:0:0 symlink",
        "shop/d.yaml:1:1 missing-field",
        "shop/d.yaml:2:1 unknown-field",
        "shop/gvc.yaml:5:1 duplicate-resource",
    ]


def test_with_skip_the_sound_files_of_a_bad_revision_are_applied(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, SOUND | {"shop/web.yaml": "kind: identity\nname: web\n"}, on_invalid="skip")
    harness.applied()
    harness.commit({"shop/web.yaml": "kind: [", "shop/new.yaml": "kind: identity\nname: new\n", "x.yaml": Symlink("y")})
    ended = harness.apply()
    assert (ended.outcome, ended.good) == ("applied", False)
    assert ended.skipped_files == "2 errors; the first: shop/web.yaml:1:8: a value is missing here"
    assert [line.split(" |")[0] for line in shown(ended.findings)] == ["shop/web.yaml:1:8 syntax", "x.yaml:0:0 symlink"]
    assert harness.recorded().keys() == {"gvc/shop", "identity/shop/sound", "identity/shop/web", "identity/shop/new"}
    harness.commit({"shop/web.yaml": None, "x.yaml": None})
    harness.applied()
    assert "identity/shop/web" not in harness.recorded()


def test_with_skip_a_change_that_the_records_forbid_stays_out_until_it_is_mended(tmp_path: Path) -> None:
    """Once taken for desired, it would wait without a word and without its place on the status branch."""
    data = "kind: volumeset\nname: data\nspec: {initialCapacity: 20, performanceClass: general-purpose-ssd}\n"
    harness = PipelineHarness(tmp_path, SOUND | {"shop/data.yaml": data}, on_invalid="skip")
    harness.applied()
    before = harness.records.desired.get("volumeset/shop/data")
    harness.commit({"shop/data.yaml": data.replace("20", "15"), "shop/new.yaml": "kind: identity\nname: new\n"})
    for pipeline in (harness.pipeline, harness.new_pipeline()):
        harness.pipeline = pipeline
        ended = harness.apply()
        assert [found.split(" |")[0] for found in shown(ended.findings)] == ["shop/data.yaml:3:25 volume-shrink"]
        assert not ended.good
        assert harness.records.desired.get("volumeset/shop/data") == before
        assert "identity/shop/new" in harness.recorded()
    harness.commit({"shop/data.yaml": data.replace("20", "25")})
    ended = harness.apply()
    assert (ended.good, ended.counts) == (True, {"updated": 1})


def test_with_skip_nothing_is_deleted_until_all_of_the_revision_can_be_read(tmp_path: Path) -> None:
    extra = {"shop/one.yaml": "kind: identity\nname: one\n", "shop/two.yaml": "kind: identity\nname: two\n"}
    harness = PipelineHarness(tmp_path, SOUND | extra, on_invalid="skip")
    harness.applied()
    before = harness.recorded().keys()
    harness.commit(
        {"shop/one.yaml": None, "shop/two.yaml": None, "shop/moved.yaml": "kind: identity\nname: one\n---\n["}
    )
    assert harness.apply().outcome == "unchanged"
    assert harness.recorded().keys() == before
    harness.commit({"shop/moved.yaml": "kind: identity\nname: one\n"})
    harness.applied()
    assert before - harness.recorded().keys() == {"identity/shop/two"}


def test_with_skip_what_others_need_is_not_deleted(tmp_path: Path) -> None:
    secret = "kind: secret\nname: s\ntype: dictionary\ndata: {a: b}\n"
    user = "kind: identity\nname: user\ntags: {reconciler/depends-on: secret/s}\n"
    harness = PipelineHarness(tmp_path, SOUND | {"s.yaml": secret, "shop/user.yaml": user}, on_invalid="skip")
    harness.applied()
    harness.commit({"s.yaml": None})
    ended = harness.apply()
    assert [line.split(" |")[0] for line in shown(ended.findings)] == ["shop/user.yaml:3:31 missing-reference"]
    assert "secret/s" in harness.recorded()


@pytest.mark.parametrize(
    "broken",
    [
        BASE.replace("locationLinks", "locationLnks"),
        BASE.replace("name: shop", "name: shop\nname: shop"),
        BASE.replace("name:", "nmae:"),
        BASE.replace("kind:", "knid:"),
        BASE.replace("kind: gvc", "kind: gcv"),
    ],
    ids=["a field is misspelt", "a document cannot be read", "no name", "no kind", "an unknown kind"],
)
def test_a_fault_is_not_repeated_by_the_resources_that_refer_to_it(broken: str, harness: PipelineHarness) -> None:
    harness.commit(
        {"shop/gvc.yaml": broken, "shop/more.yaml": "kind: identity\nname: sound\n---\nkind: identity\nname: b\n"}
    )
    found = findings_in_time(harness)
    assert found
    assert {line.partition(":")[0] for line in found} == {"shop/gvc.yaml"}


def test_a_first_load_reports_an_unreadable_file_and_not_what_it_may_declare(tmp_path: Path) -> None:
    harness = PipelineHarness(
        tmp_path, {"shop/gvc.yaml": BASE.replace("name: shop", "name: y"), "shop/w.yaml": "kind: identity\nname: a\n"}
    )
    assert {line.partition(":")[0] for line in findings_in_time(harness)} == {"shop/gvc.yaml"}


def test_a_first_load_reports_a_broken_gvc_and_not_its_members(tmp_path: Path) -> None:
    harness = PipelineHarness(
        tmp_path,
        {
            "shop/gvc.yaml": BASE.replace("locationLinks", "locationLnks"),
            "shop/w.yaml": "kind: identity\nname: a\n",
            "p.yaml": "kind: policy\nname: p\ntargetKind: identity\ntargetLinks: [//gvc/shop/identity/a]\n",
        },
    )
    assert {line.partition(":")[0] for line in findings_in_time(harness)} == {"shop/gvc.yaml"}


def test_a_revision_without_manifests_is_not_even_planned(harness: PipelineHarness) -> None:
    commit = harness.repo.git("commit-tree", "-m", "Empty", harness.repo.git("mktree", "--missing"))
    with pytest.raises(SourceEmpty):
        harness.pipeline.plan_revision(commit)
