"""What fuzzing begins with: every example and case of the repository, and the words of the schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from reconciler.convert.quadlet.fields import CARRIED, LEFT_OUT
from reconciler.documents.reader import parse_documents
from tests.fuzz.canary import planted
from tests.fuzz.oracles import BETWEEN, BYTES, THEN
from tests.fuzz.revisions import stepped
from tests.support.cases import CASES
from tests.support.mutations import EXAMPLES, Pool, examples
from tests.support.sops import FILES

MOST_INNER = 2_000

SOPS = {"sops": {"lastmodified": "2026-01-02T03:04:05Z", "mac": ""}}
"""What makes the decoder read a document as an encrypted one."""


def texts() -> Iterator[bytes]:
    """Files as people write them: the examples, the cases of the reader and of the rules, with their oddities."""
    for path in (*EXAMPLES.rglob("*.yaml"), *CASES.rglob("*.yaml")):
        raw = path.read_bytes()
        yield raw
        yield from _inner(raw)
    for document in examples():
        if document["kind"] == "secret":
            yield from _written(planted(document))
            yield from _written(planted(document) | SOPS)
        yield json.dumps(document | SOPS | {"description": "\U0001f600"}).encode()
    yield from (path.read_bytes() for path in FILES)


def json_texts() -> Iterator[bytes]:
    """Files in JSON: the examples in several layouts, alone and in lists, and the cases, with and without faults."""
    every = [*examples()]
    for at, document in enumerate(every):
        for indent in (None, 2, "\t"):
            yield json.dumps(document, indent=indent).encode()
            yield json.dumps(every[at : at + 3], indent=indent).encode()
    for path in ("reading/json.yaml", "json/recognition.yaml", "json/edits.yaml"):
        for case in yaml.safe_load((CASES / path).read_bytes()):
            yield case["input"].encode()


ODD_KEYS = (".", ".common", "a.b", "services.a", "deploy.mode", "a/b", "~0", "~1", "[0]", '"', "", "0", "x-.y", "*")
"""Keys with the signs that paths and pointers are written with."""


def projects() -> Iterator[bytes]:
    """Compose files of the cases, and with keys that have signs of paths at each level."""
    for path in CASES.glob("compose/*.yaml"):
        yield from _inner(path.read_bytes())
    for key in ODD_KEYS:
        value = {"a": "b", key: {key: "c"}}
        yield json.dumps({key: value, "services": {"web": {"image": "a"}}}).encode()
        yield json.dumps({"services": {key: {"image": "a", key: value}, "web": {"extends": key}}}).encode()
        for field in ("environment", "labels", "deploy", "healthcheck", "volumes", "secrets", "depends_on"):
            yield json.dumps({"services": {"web": {"image": "$SET", field: value}}, "secrets": value}).encode()


def resources() -> Iterator[bytes]:
    """Kubernetes documents of the cases, the examples as exports, and both with keys that have signs of paths."""
    for path in CASES.glob("convert/*.yaml"):
        yield from _inner(path.read_bytes())
    for document in examples():
        yield json.dumps(document).encode()
        for key in ODD_KEYS:
            yield json.dumps({**document, key: {key: "a"}, "tags": {key: "a"}}).encode()
    for key in ODD_KEYS:
        labels = {key: "a", "app": "web"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b", key: labels}]}}
        head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": key, "labels": labels}}
        yield json.dumps({**head, "spec": {"selector": {"matchLabels": labels}, "template": pod, key: {}}}).encode()


def deployments() -> Iterator[bytes]:
    """deploy.yml of the cases, whole and with keys that have signs of paths at each level."""
    for path in CASES.glob("kamal/*.yaml"):
        yield from _inner(path.read_bytes())
        yield BETWEEN.join(text.encode() for text in loaded(path.read_bytes())[0]["files"].values())
    for key in ODD_KEYS:
        value = {"a": "b", key: {key: "c"}}
        head = {"service": "a", "image": "b", key: value}
        yield json.dumps({**head, "servers": {key: {"hosts": ["a"], "cmd": "b", key: value}}}).encode()
        yield json.dumps({**head, "accessories": {key: {"image": "a", "directories": [f"{key}:/a"]}}}).encode()
        for field in ("env", "labels", "volumes", "proxy", "registry", "builder"):
            yield json.dumps({**head, field: value}).encode()
            yield json.dumps({**head, "servers": {"web": {field: value}}, "proxy": {"host": key}}).encode()


def units() -> Iterator[bytes]:
    """Quadlets of the cases, alone and each after others, with every key and odd values."""
    texts = [
        text.encode()
        for path in CASES.glob("quadlet/*.yaml")
        for text in loaded(path.read_bytes())[0]["files"].values()
    ]
    for at, text in enumerate(texts):
        yield text
        yield BETWEEN.join(texts[at : at + 7])
        rest = [b"", b"", b"", b"", b""]
        yield BETWEEN.join([b"[Container]\nImage=a\nEnvironmentFile=a.env", text, *rest, text, text, text, b"A=b"])
        yield BETWEEN.join(
            [b"[Container]\nImage=a\nPod=all.pod\nVolume=own.volume:/a", text, b"[Pod]\nPublishPort=80:80"]
        )
    for form in (*CARRIED, *(f"Container.{key}" for key in LEFT_OUT)):
        section, _, key = form.partition(".")
        for value in ("", "a=b", '"', "%h", "a,type=env", "own.volume:/x", "[1]", "10", "\\"):
            yield f"[Container]\nImage=a\n[{section}]\n{key}={value}\n".encode()


def _written(document: Any) -> Iterator[bytes]:
    """One document in the styles of YAML, alone and after another one."""
    for flow in (False, True, None):
        for style in ("", '"', "|"):
            text = yaml.safe_dump(document, default_flow_style=flow, default_style=style, sort_keys=False)
            yield text.encode()
            yield f"# comment\nkind: gvc\nname: shop\n---\n{text}\n...\n".encode()


def _inner(raw: bytes) -> Iterator[bytes]:
    """Files that are written down within a case."""
    try:
        waiting: list[Any] = list(yaml.load_all(raw, yaml.CSafeLoader))
    except (yaml.YAMLError, ValueError):
        return
    # Some cases are made to have no end.
    for _ in range(MOST_INNER):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, bytes):
            yield value
        elif isinstance(value, str) and "\n" in value:
            yield value.encode()


def streams() -> Iterator[bytes]:
    """Documents as JSON, several to a file: each example, secrets with the canary, each case of a rule."""
    documents = examples()
    for document in documents:
        yield stream([document])
        yield stream([planted(document)])
    for path in (*(EXAMPLES.glob("*")), *CASES.glob("rules/*/*.yaml")):
        files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        contents = [document for file in files for document in loaded(file.read_bytes())]
        if contents:
            yield stream(contents)
            yield stream([planted(document) for document in contents])


def steps() -> Iterator[bytes]:
    """Revisions without errors, each followed by itself."""
    yield from (raw + THEN + raw for raw in streams() if stepped({"a.yaml": raw}, {}) is not None)


def loaded(raw: bytes) -> list[Any]:
    """The documents of a file that can be read."""
    return [document.value for document in parse_documents(raw).documents]


def stream(documents: list[Any], *, escaped: bool = False) -> bytes:
    """``documents`` as one file; ``escaped`` leaves nothing but ASCII in it."""
    return BETWEEN.join(json.dumps(each, indent=1, ensure_ascii=escaped).encode() for each in documents)


def parted(raw: bytes) -> list[Any]:
    """The documents of ``stream``. Raises ValueError where ``raw`` was not written by it."""
    return [json.loads(part) for part in raw.split(BETWEEN)]


def write_seeds(directory: Path, seeds: Iterator[bytes]) -> int:
    """Write each seed that is not too long into a file of its own; their number."""
    directory.mkdir(parents=True, exist_ok=True)
    usable = sorted({seed for seed in seeds if 0 < len(seed) <= BYTES})
    for number, seed in enumerate(usable):
        directory.joinpath(f"{number:05d}").write_bytes(seed)
    return len(usable)


def dictionary() -> str:
    """Words of manifests, one a line as libFuzzer wants them."""
    pool = Pool(examples())
    words = {name for name, _ in pool.fields} | {value for value in pool.values if isinstance(value, str)}
    words |= {"sops:", '"sops":', "lastmodified:", "mac:", "age:", "encrypted_regex:", "\\ud83d\\ude00"}
    words |= {"ENC[AES256_GCM,data:QQ==,iv:QQ==,tag:QQ==,type:str]"}
    words |= {"---\n", "\n- ", ": ", "<<: *", "&a ", "*a", "!!str ", "|-\n", "? ", "# reconciler: ignore "}
    return "".join(f'"{_escaped(word)}"\n' for word in sorted(words) if 0 < len(word.encode()) <= 60)


def _escaped(word: str) -> str:
    plain = set(range(32, 127)) - {ord('"'), ord("\\")}
    return "".join(chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in word.encode())
