"""A file of many documents, decoded by document, gives what decoding it whole gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from reconciler.decode import by_document
from reconciler.decode.by_document import decode_by_document, has_many_documents, without_secrets
from reconciler.decode.cache import Blobs, Cache
from reconciler.decode.decode import decode_all
from reconciler.documents.limits import LIMITS
from reconciler.manifests.decoder import Decoded, decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.revision import FileChange

DIALECT = ManifestContext("acme")
EXAMPLES = Path(__file__).parents[2] / "examples" / "repo"


def workload(number: int, image: str = "web:1") -> str:
    return f"""kind: workload
name: w{number}
gvc: shop
spec:
  type: standard
  containers:
    - name: main
      image: {image}
      args: ["--port", '80']
      ports: [{{number: 80, protocol: http}}]
      env:
        - {{name: TEXT, value: "a: b"}}
        - name: BLOCK
          value: |
            one
              two

"""


def secret(number: int) -> str:
    return (
        f"kind: secret\nname: s{number}\ntype: opaque\n# reconciler: ignore secret-plain-text it is made up\n"
        "data: {encoding: plain, payload: not-a-real-token}\n"
    )


def file(*documents: str) -> bytes:
    return "---\n".join(documents).encode()


def by_documents(former: bytes, raw: bytes) -> Decoded | None:
    known = decode_manifests(former, DIALECT)
    public = without_secrets(known)
    found = decode_by_document(raw, former, known, DIALECT)
    assert public is None or decode_by_document(raw, former, public, DIALECT) == found
    return found


COMMENTED = f"# reconciler: ignore tcp-outside it is inside\n{workload(12)}"
DOCUMENTS = [
    *(workload(number) for number in range(12)),
    "# nothing but a comment\n",
    COMMENTED,
    "",
    secret(1),
    secret(2),
]
FORMER = file(*DOCUMENTS)


@pytest.mark.parametrize(
    "documents",
    [
        DOCUMENTS,
        [*DOCUMENTS[:5], workload(5, "web:2"), *DOCUMENTS[6:]],
        [workload(20), *DOCUMENTS],
        DOCUMENTS[::-1],
        DOCUMENTS[3:],
        [*DOCUMENTS, "---\n", workload(21)],
        ["---\n" + DOCUMENTS[0], *DOCUMENTS[1:]],
        [*DOCUMENTS, workload(22).rstrip()],
        [*DOCUMENTS, secret(3)],
        [*DOCUMENTS, *DOCUMENTS],
        [f"\n# here it begins\n\n{DOCUMENTS[0]}", *DOCUMENTS[1:]],
    ],
)
def test_changed_documents_alone_are_decoded(documents: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    raw = file(*documents)
    whole, former = decode_manifests(raw, DIALECT), decode_manifests(FORMER, DIALECT)
    decoded: list[bytes] = []

    def counted(text: bytes, dialect: ManifestContext) -> Decoded:
        decoded.append(text)
        return decode_manifests(text, dialect)

    monkeypatch.setattr(by_document, "decode_manifests", counted)
    assert decode_by_document(raw, FORMER, former, DIALECT) == whole
    assert decode_by_document(raw, raw, whole, DIALECT) == whole
    assert not set(decoded) & {each.encode() for each in DOCUMENTS if each.startswith("kind: workload")}


@pytest.mark.parametrize("documents", [DOCUMENTS, DOCUMENTS[:-2]])
def test_the_cache_of_a_former_version_is_enough_although_it_has_no_secrets(
    documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"1" * 40: file(*documents), "2" * 40: file(workload(30), *documents[1:])}
    blobs = Blobs(lambda blob: len(files[blob]), files.__getitem__)
    stored: dict[str, bytes] = {}
    cache = Cache(lambda wanted: {blob: stored[blob] for blob in wanted if blob in stored}, stored.update)
    first, second = "1" * 40, "2" * 40
    [(_, before)] = decode_all([FileChange("a.yaml", "", first)], blobs, cache, DIALECT)
    assert before == decode_manifests(files[first], DIALECT)
    assert before.faults
    assert before.unused_comments
    decoded: list[bytes] = []
    monkeypatch.setattr(
        by_document, "decode_manifests", lambda text, dialect: decoded.append(text) or decode_manifests(text, dialect)
    )
    [(_, after)] = decode_all([FileChange("a.yaml", first, second)], blobs, cache, DIALECT)
    assert after == decode_manifests(files[second], DIALECT)
    assert not any(b"name: w1\n" in text for text in decoded)
    assert decoded[0] == workload(30).encode()
    assert not any(b"not-a-real-token" in row for row in stored.values())


@pytest.mark.parametrize(
    "odd",
    [
        "kind: workload\nname: [broken\n",
        "kind: workload\nname: w1\nnome: x\n",
        "--- {kind: agent, name: toys}\n",
        "kind: agent\nname: toys\n...\n# end\n",
        "%YAML 1.2\n---\nkind: agent\nname: toys\n",
        "kind: agent\nname: toys\ntags: &tags {a: b}\n",
        "kind: agent\r\nname: toys\r\n",
        "\ufeffkind: agent\nname: toys\n",
        "# reconciler: ignore no-such-rule it is odd\nkind: agent\nname: toys\n",
        "kind: agent\nname: toys\nsops: {}\n",
    ],
)
def test_a_file_with_anything_odd_is_decoded_whole(odd: str) -> None:
    raw = file(*DOCUMENTS, odd)
    assert by_documents(FORMER, raw) in (None, decode_manifests(raw, DIALECT))
    assert by_documents(raw, FORMER) in (None, decode_manifests(FORMER, DIALECT))


def test_a_notice_about_the_whole_file_is_written_anew() -> None:
    reported = "kind: agent\nname: toys\nid: '1'\n"
    former = file(*DOCUMENTS, reported)
    assert decode_manifests(former, DIALECT).faults
    assert by_documents(former, file(workload(30), *DOCUMENTS, reported)) is None


def test_examples_put_into_one_file_and_changed_at_random() -> None:
    texts = sorted(path.read_text() for path in EXAMPLES.rglob("*.yaml") if "\n---\n" not in path.read_text())
    chance = random.Random(7)
    for _ in range(20):
        former, fresh = ([chance.choice(texts) for _ in range(15)] for _ in range(2))
        raw = file(*fresh, *former[:7])
        assert by_documents(file(*former), raw) in (None, decode_manifests(raw, DIALECT))


@pytest.mark.parametrize(
    "text", ["", "{'a':1,\"b\":[1,[2],{c: d}]}\n", "- a\n-\n- - b\n", "? a\n? b\n: c\n", "a: {b: c}\n"]
)
def test_no_file_has_more_nodes_than_counted(text: str) -> None:
    raw = file(text, *DOCUMENTS)
    nodes = (yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent)
    assert sum(isinstance(event, nodes) for event in yaml.parse(raw)) <= by_document._most_nodes(raw)


def test_a_file_of_too_many_documents_is_decoded_whole() -> None:
    former = file(*(f"kind: agent\nname: a{number}\n" for number in range(LIMITS.documents)))
    raw = former + b"---\nkind: agent\nname: more\n"
    assert has_many_documents(raw)
    assert by_documents(former, raw) is None
    assert [fault.rule for fault in decode_manifests(raw, DIALECT).faults] == ["too-many-documents"]
