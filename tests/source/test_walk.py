"""Which files are manifests, what differs between two trees, and at what cost."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.errors import SourceError
from reconciler.model.finding import Finding
from reconciler.model.revision import FileChange
from reconciler.source import tree_diff
from reconciler.source.file_filter import FileFilter
from reconciler.source.source import Source
from reconciler.source.tree_diff import TreeEntry, TreeReader, Walk
from tests.source.conftest import Opener
from tests.support.examples import examples
from tests.support.git import File, GitRepo, Submodule, Symlink, git
from tests.support.pace import in_time


def taken(source: Source) -> list[str]:
    return [change.path for change in source.repository.changes("", source.revision().tree)]


def rules_of(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in findings]


def test_manifests_are_yaml_files_that_are_not_hidden_in_path_order(make_source: Opener) -> None:
    files = [
        "a.yml",
        "a/x.yaml",
        "a.yaml",
        "a-b/x.yaml",
        "README.md",
        ".ci/x.yaml",
        ".gitlab-ci.yml",
        "a/.hidden.yaml",
        "a/.hid/x.yaml",
        "x.yaml.bak",
        "ü.yaml",
    ]
    assert taken(make_source(dict.fromkeys(files, "x"))) == ["a-b/x.yaml", "a.yaml", "a.yml", "a/x.yaml", "ü.yaml"]


def test_paths_begin_at_the_path_of_the_source(make_source: Opener) -> None:
    files = {
        "prod/shop/a.yaml": "a",
        "test/b.yaml": "b",
        "prod/.reconcilerignore": "/shop/c.yaml",
        "prod/shop/c.yaml": "c",
    }
    assert taken(make_source(files, path="./prod/")) == ["shop/a.yaml"]


def test_include_exclude_and_the_ignore_file_narrow_what_is_taken(make_source: Opener) -> None:
    files = {
        ".reconcilerignore": "# drafts\n*.draft.yaml\n/vendor/\n!vendor/keep.yaml\n",
        "prod/a.yaml": "a",
        "prod/a.draft.yaml": "a",
        "prod/old/b.yaml": "b",
        "vendor/c.yaml": "c",
        "vendor/keep.yaml": "k",
        "test/d.yaml": "d",
    }
    assert taken(make_source(files, include=("prod", "vendor/**"), exclude=("**/old/*",))) == [
        "prod/a.yaml",
        "vendor/keep.yaml",
    ]


@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [
        ("x.yaml", "a/b/x.yaml", True),
        ("/x.yaml", "a/x.yaml", False),
        ("a/*.yaml", "a/x.yaml", True),
        ("a/*.yaml", "a/b/x.yaml", False),
        ("a/**/x.yaml", "a/x.yaml", True),
        ("a/**/**/x.yaml", "a/b/c/x.yaml", True),
        ("**/b", "a/b/x.yaml", True),
        ("b/", "a/b/x.yaml", True),
        ("x.yaml/", "a/x.yaml", False),
        ("[!y].yaml", "x.yaml", True),
        ("a?b/*", "a/b/x.yaml", False),
        ("\\#x.yaml", "#x.yaml", True),
    ],
)
def test_patterns_mean_what_they_mean_in_a_gitignore(pattern: str, path: str, covered: bool) -> None:
    assert FileFilter(ignored=pattern.encode()).matches(path) is not covered
    assert FileFilter(include=[pattern]).matches(path) is covered


def test_hostile_patterns_take_no_time_and_too_many_are_refused() -> None:
    hostile, path = b"/".join([b"**"] * 200 + [b"*a" * 200]), "/".join(["a" * 200] * 60) + "/x.yaml"
    in_time(lambda: FileFilter(ignored=hostile).matches(path), 1.0)
    with pytest.raises(SourceError, match="too large"):
        FileFilter(ignored=b"a\n" * 1000)


def test_the_selection_changes_with_the_ignore_file_and_the_settings_only(repo: GitRepo, opener: Opener) -> None:
    source = opener(repo.path)

    def digest(**settings: object) -> str:
        return opener(repo.path, **settings).repository.selection(source.revision())

    before = digest()
    assert digest(exclude=("x",)) != before
    repo.commit({"b.yaml": "b"})
    assert digest() == before
    repo.commit({".reconcilerignore": "b.yaml"})
    assert digest() != before


def test_an_ignore_file_that_is_a_link_is_refused(make_source: Opener) -> None:
    with pytest.raises(SourceError, match="must be a file of its own"):
        make_source({"a.yaml": "a", ".reconcilerignore": Symlink("/etc/passwd")}).revision()


def test_an_entry_in_place_of_a_manifest_is_a_finding(make_source: Opener) -> None:
    source = make_source(
        {
            "a.yaml": "a",
            "link.yaml": Symlink("a.yaml"),
            "other": Symlink("a.yaml"),
            "vendor/lib": Submodule(),
            "bad\nname.yaml": "b",
            b"\xff/latin.yaml": "c",
            "\u202eevil.yaml": "d",
            "ignored.yaml": Symlink("a.yaml"),
            ".reconcilerignore": "ignored.yaml",
        }
    )
    comparison = source.repository.compare("", source.revision().tree)
    assert [change.path for change in comparison.changes] == ["a.yaml"]
    assert rules_of(comparison.findings) == [
        ("file-name", "bad\\nname.yaml"),
        ("symlink", "link.yaml"),
        ("submodule", "vendor/lib"),
        ("file-name", "\\u202eevil.yaml"),
        ("file-name", "\\xff/latin.yaml"),
    ]
    assert all(finding.suggestion for finding in comparison.findings)


def test_a_finding_ends_when_the_entry_goes_or_becomes_a_file(repo: GitRepo, opener: Opener) -> None:
    source = opener(repo.path)
    odd: dict[str, File] = {"a.yaml": Symlink("x"), "b.yaml": Symlink("x"), "c/d.yaml": "d"}
    repo.commit(odd)
    first = source.revision().tree
    repo.commit({"a.yaml": "a", "b.yaml": None, "c/d.yaml": Symlink("x")})
    comparison = source.repository.compare(first, source.revision().tree)
    assert rules_of(comparison.resolved_findings) == [("symlink", "a.yaml"), ("symlink", "b.yaml")]
    assert rules_of(comparison.findings) == [("symlink", "c/d.yaml")]
    assert [(change.path, bool(change.before), bool(change.after)) for change in comparison.changes] == [
        ("a.yaml", False, True),
        ("c/d.yaml", True, False),
    ]


def test_a_file_in_json_is_no_finding_whatever_it_is(make_source: Opener) -> None:
    source = make_source(
        {
            "a.yaml": "a",
            "a.json": "{}",
            "link.json": Symlink("a.json"),
            "bad\nname.json": "{}",
            b"\xff/latin.json": "{}",
            ".hidden.json": "{}",
            "ignored.json": "{}",
            ".reconcilerignore": "ignored.json",
        }
    )
    comparison = source.repository.compare("", source.revision().tree)
    assert comparison.findings == []
    contents = {change.path: source.repository.read(change.after) for change in comparison.changes}
    assert contents == {"a.json": b"{}", "a.yaml": b"a", "link.json": b"a.json"}


def test_the_same_bytes_are_another_file_as_json(make_source: Opener) -> None:
    source = make_source({"a.yaml": MANIFEST, "a.json": MANIFEST})
    as_json, as_yaml = source.repository.changes("", source.revision().tree)
    assert as_json.after == f"{as_yaml.after}.json"
    assert source.repository.size(as_json.after) == source.repository.size(as_yaml.after) == len(MANIFEST)


MANIFEST = '{"kind": "group", "name": "a"}'


@pytest.mark.parametrize(
    ("files", "is_filled"),
    [
        ({"package.json": '{"name": "web"}', "x.json": "{"}, False),
        ({"package.json": '{"name": "web"}', "z/a.json": MANIFEST}, True),
        ({"package.json": '{"name": "web"}', "z.yaml": "x"}, True),
        ({"a.json": Symlink("b.json"), "b.txt": MANIFEST}, False),
        ({"a.json": f"[{MANIFEST},]"}, True),
        ({"a.json": MANIFEST + " " * (17 << 20)}, False),
    ],
)
def test_the_content_of_json_decides_whether_a_source_is_empty(
    files: dict[str, File], is_filled: bool, make_source: Opener
) -> None:
    repository = make_source({"keep.txt": "", **files}).repository
    tree = repository.resolve().tree
    assert repository.has_manifests(tree) is is_filled
    assert repository.has_manifests(tree) is is_filled


def test_a_source_whose_last_manifest_in_json_is_another_file_now_is_empty(repo: GitRepo, opener: Opener) -> None:
    source = opener(repo.path)
    repo.commit({"shop/gvc.yaml": None, "shop/a.json": MANIFEST})
    assert source.repository.has_manifests(source.revision().tree)
    repo.commit({"shop/a.json": '{"name": "a"}'})
    assert not source.repository.has_manifests(source.repository.resolve().tree)


def test_a_changed_mode_is_no_change(repo: GitRepo, opener: Opener) -> None:
    source = opener(repo.path)
    before = source.revision()
    blob = repo.git("rev-parse", "main:shop/gvc.yaml")
    shop = git(repo.path, "mktree", stdin=f"100755 blob {blob}\tgvc.yaml\n".encode())
    tree = git(repo.path, "mktree", stdin=f"040000 tree {shop}\tshop\n".encode())
    assert list(source.repository.changes(before.tree, tree)) == []


NAMES = st.sampled_from(["a", "b", "a.yaml", "b.yaml", "a-", "a.yaml.d", ".d", "n.txt"])
TREES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.sampled_from("xyz"), max_size=12)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(before=TREES, after=TREES)
def test_the_walk_finds_what_two_full_listings_find(
    repo: GitRepo, opener: Opener, before: dict[str, str], after: dict[str, str]
) -> None:
    trees = [_tree_of(repo, files) for files in (before, after)]
    changes = list(opener(repo.path).repository.changes(*trees))
    one, other = (_listing(repo, tree) for tree in trees)
    differing = sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))
    assert changes == [FileChange(path, one.get(path, ""), other.get(path, "")) for path in differing]


def _tree_of(repo: GitRepo, files: dict[str, str]) -> str:
    directories = {str(parent) for path in files for parent in Path(path).parents}
    possible = {path: content for path, content in files.items() if path not in directories}
    return repo.git("rev-parse", repo.commit(possible, whole=True) + "^{tree}")


def _listing(repo: GitRepo, tree: str) -> dict[str, str]:
    """Every manifest of ``tree`` by path, as git itself lists it."""
    lines = repo.git("ls-tree", "-r", tree).splitlines()
    files = {path: meta.split()[2] for meta, _, path in (line.partition("\t") for line in lines)}
    return {path: blob for path, blob in files.items() if path.endswith(".yaml") and "/." not in f"/{path}"}


def test_the_cost_of_a_comparison_follows_the_change_and_not_the_repository(tmp_path: Path) -> None:
    files = {f"{folder}/{name}.yaml": f"{folder} {name}" for folder in range(50) for name in range(20)}
    repo = GitRepo.create(tmp_path / "large.git", files)
    before = bytes.fromhex(repo.git("rev-parse", "main^{tree}"))
    repo.commit({"7/3.yaml": "changed"})
    after = bytes.fromhex(repo.git("rev-parse", "main^{tree}"))
    read: list[bytes] = []

    def reading(raw: bytes) -> bytes:
        read.append(raw)
        command = ["git", "cat-file", "tree", raw.hex()]
        return subprocess.run(command, cwd=repo.path, capture_output=True, check=True).stdout

    assert [change.path for change in Walk(TreeReader(reading)).differences(before, after)] == [b"7/3.yaml"]
    assert len(read) == 4
    assert list(Walk(TreeReader(reading)).differences(after, after)) == []
    assert len(read) == 4


def test_trees_that_spell_more_files_than_there_are_atoms_are_refused(
    tmp_path: Path, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = GitRepo.create(tmp_path / "bomb.git", {"a.yaml": "a"})
    inner = repo.git("rev-parse", "main:a.yaml")
    entry = "100644 blob"
    for _ in range(12):
        lines = "".join(f"{entry} {inner}\t{name:04}.yaml\n" for name in range(200))
        inner, entry = git(repo.path, "mktree", stdin=lines.encode()), "040000 tree"
    repository = opener(repo.path).repository
    monkeypatch.setattr(tree_diff, "MOST_ENTRIES", 5000)
    with pytest.raises(SourceError, match="more than 5,000 files"):
        repository.compare("", inner)
    repo.commit({"/".join(["d"] * 80) + "/a.yaml": "a"})
    with pytest.raises(SourceError, match="nested more than 64"):
        repository.compare("", repository.resolve().tree)


def test_a_tree_that_cannot_be_read_whole_is_an_error_and_not_a_smaller_tree() -> None:
    whole = b"100644 a.yaml\0" + b"1" * 20
    for content in (whole + b"rest", whole[:-1], b"100644 a/b.yaml\0" + b"1" * 20):
        with pytest.raises(SourceError, match="malformed"):
            list(Walk(TreeReader({b"1" * 20: content}.__getitem__)).differences(b"", b"1" * 20))


IDS = (b"1" * 20, b"2" * 20, b"100644 a.yaml\x00123456", b"\x00100644 b.yaml\x0012345", b"40000 c\x00100644 d.yam")
"""Ids of objects: those of submodules may be any bytes, also such that look like entries."""
NAMES = st.text("abc", min_size=1, max_size=3).map(lambda name: name.encode() + b".yaml")
VERSIONS = st.lists(st.dictionaries(NAMES, st.sampled_from(IDS), max_size=60), min_size=2, max_size=5)


def _encode(entries: dict[bytes, bytes]) -> bytes:
    return b"".join(b"160000 " + name + b"\0" + id_ for name, id_ in sorted(entries.items()))


@given(VERSIONS)
@settings(max_examples=examples(200), deadline=None)
def test_versions_of_a_tree_differ_as_their_entries_do(versions: list[dict[bytes, bytes]]) -> None:
    contents = {bytes([number]) * 20: _encode(version) for number, version in enumerate(versions)}
    reader = TreeReader(contents.__getitem__)
    for (before, after), (old, new) in zip(pairwise(contents), pairwise(versions), strict=True):
        blobs = {each.path: (each.before, each.after) for each in Walk(reader).differences(before, after)}
        changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        entries = [{name: TreeEntry(b"160000", id_) for name, id_ in version.items()} for version in (old, new)]
        assert blobs == {name: (entries[0].get(name), entries[1].get(name)) for name in changed}


def test_an_entry_that_ends_inside_of_another_one_is_no_entry() -> None:
    tail = b"160000 aaaaaaaaaaaaa1 b.yaml\0" + b"2" * 20
    same = b"".join(b"160000 %03d.yaml\0" % number + b"1" * 20 for number in range(31))
    old, new = same + b"160000 v.yaml\0" + b"1" * 20 + tail, same + b"160000 w.yaml\0" + tail
    reader = TreeReader({b"1" * 20: old, b"2" * 20: new}.__getitem__)
    blobs = {each.path: each.after for each in Walk(reader).differences(b"1" * 20, b"2" * 20)}
    assert blobs == {
        b"aaaaaaaaaaaaa1 b.yaml": None,
        b"v.yaml": None,
        b"b.yaml": TreeEntry(b"1", b"2" * 20),
        b"w.yaml": TreeEntry(b"160000", tail[:20]),
    }


def test_a_tree_is_malformed_also_where_another_is_known() -> None:
    entries = [b"100644 %03d.yaml\0" % number + b"1" * 20 for number in range(200)]
    damaged = [*entries[:100], entries[100][7:], *entries[101:]]
    contents = {b"1" * 20: b"".join(entries), b"2" * 20: b"".join(damaged)}
    reader = TreeReader(contents.__getitem__)
    list(Walk(reader).differences(b"", b"1" * 20))
    with pytest.raises(SourceError, match="malformed"):
        list(Walk(reader).differences(b"1" * 20, b"2" * 20))


def test_the_cache_of_trees_is_limited_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_diff, "CACHED_BYTES", 20_000)
    entries = [b"100644 %03d.yaml\0" % number + b"1" * 20 for number in range(200)]
    contents = {bytes([number]) * 20: b"".join(entries[number:]) for number in range(9)}
    read: list[bytes] = []
    reader = TreeReader(lambda id_: read.append(id_) or contents[id_])  # type: ignore[func-returns-value]
    for before, after in pairwise(contents):
        list(Walk(reader).differences(before, after))
    assert read == [*contents]
    reader.content(bytes(20))
    assert len(read) == len(contents) + 1
