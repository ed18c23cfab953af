"""Other texts: YAML and JSON as such, settings, env files, queries of logs, and files that list what is ignored."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file
from reconciler.documents.reader import parse_documents
from reconciler.errors import SourceError, UsageError
from reconciler.logql.parser import parse_log_query
from reconciler.logql.tokens import QueryError
from reconciler.settings.loader import load_settings
from reconciler.source.file_filter import FileFilter
from tests.cost.growth import Shape
from tests.cost.inputs.manifests import growing_values, grown
from tests.cost.inputs.repeated import lines


def read_env(text: str) -> None:
    """As a file of variables beside a project is read."""
    try:
        parse_env_file(text.encode(), {"OUTER": "value"})
    except EnvFileError:
        return


ENV_FILES: dict[str, Shape] = {
    "lines": Shape(lambda count: lines(count, "VN=value"), read_env, 10_000),
    "lines that use the first": Shape(lambda count: lines(count, "VN=$V0"), read_env, 10_000),
    "lines that use the one before": Shape(lambda count: lines(count, "VN=$VM"), read_env, 10_000),
    "a line that doubles": Shape(lambda count: "A=x\n" + "A=$A$A\n" * count, read_env, 10_000),
    "a line that grows": Shape(lambda count: "A=x\n" + "A=$A-value\n" * count, read_env, 10_000),
    "lines with quotes": Shape(lambda count: lines(count, 'VN="a\\nb" # c'), read_env, 10_000),
    "a value of many lines": Shape(lambda count: 'A="' + "line\n" * count + '"', read_env, 5_000),
    "quotes that do not end": Shape(lambda count: lines(count, 'VN="a'), read_env, 10_000),
    "single quotes that do not end": Shape(lambda count: lines(count, "VN='a"), read_env, 10_000),
    "empty lines": Shape(lambda count: "\n" * count, read_env, 20_000),
    "blanks": Shape(lambda count: "A=" + " " * count + "b" + " " * count, read_env, 5_000),
    "blanks before signs": Shape(lambda count: "A=" + " \t#" * count, read_env, 5_000),
    "a long name": Shape(lambda count: "A" * count, read_env, 20_000),
    "names alone": Shape(lambda count: lines(count, "VN"), read_env, 10_000),
    "a dollar sign at the end of each line": Shape(lambda count: lines(count, "VN=a$"), read_env, 10_000),
}


def _query(text: str) -> None:
    try:
        parse_log_query(text)
    except QueryError:
        return


def _ignore(raw: bytes) -> None:
    try:
        chosen = FileFilter(ignored=raw)
    except SourceError:
        return
    for number in range(20):
        chosen.matches("/".join(["folder"] * 20) + f"/{number}.yaml")


def _paths(paths: list[str]) -> None:
    chosen = FileFilter(ignored=b"**/a*/**/b*/**/c.yaml\nfolder*/\n")
    for path in paths:
        chosen.matches(path)


QUERIES: dict[str, Shape] = {
    "labels": Shape(lambda count: "{" + lines(count, 'gvc="gN"', ",") + "}", _query, 100),
    "filters": Shape(lambda count: '{gvc="a"}' + lines(count, '|= "wN"', " "), _query, 100),
    "a long text": Shape(lambda count: f'{{gvc="{"a" * count}"}}', _query, 2_000),
    "an expression": Shape(lambda count: f'{{gvc=~"{"a|" * count}b"}}', _query, 400),
    "groups": Shape(lambda count: f'{{gvc=~"{"(a)" * count}"}}', _query, 400),
    "groups in one another": Shape(lambda count: f'{{gvc=~"{"(" * count}a{")" * count}"}}', _query, 40),
    "escapes": Shape(lambda count: '{gvc="' + "\\n" * count + '"}', _query, 1_000),
    "blanks": Shape(lambda count: '{gvc="a"}' + " " * count, _query, 2_000),
    "a long label": Shape(lambda count: "{" + "a" * count + '="b"}', _query, 2_000),
}
IGNORED: dict[str, Shape] = {
    "patterns": Shape(lambda count: lines(count, "d*N/**/x?.yaml").encode(), _ignore, 100),
    "comments": Shape(lambda count: lines(count, "# comment N").encode(), _ignore, 2_000),
    "names of a pattern": Shape(lambda count: ("**/d*/" * count).encode(), _ignore, 200),
    "stars of a pattern": Shape(lambda count: ("a*" * count).encode(), _ignore, 400),
    "a long name": Shape(lambda count: b"a" * count, _ignore, 20_000),
    "classes": Shape(lambda count: b"[a-" * count, _ignore, 2_000),
    "paths": Shape(lambda count: [f"shop/folder/{n}.yaml" for n in range(count)], _paths, 1_000),
    "a deep path": Shape(lambda count: ["a/" * count + "b.yaml"], _paths, 1_000),
}


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="growth-"))


def read_settings(text: str) -> None:
    """As the daemon loads its settings."""
    path = _folder() / "settings.yaml"
    path.write_text(text)
    try:
        load_settings(path)
    except UsageError as error:
        str(error)


DOCUMENTS: dict[str, Shape] = {
    "scalars": Shape(lambda count: lines(count, "kN: text").encode(), parse_documents, 1_000),
    "items": Shape(lambda count: lines(count, "- text N").encode(), parse_documents, 1_000),
    "duplicate keys": Shape(lambda count: lines(count, "k: text N").encode(), parse_documents, 1_000),
    "ambiguous words": Shape(lambda count: lines(count, "kN: no").encode(), parse_documents, 1_000),
    "unknown tags": Shape(lambda count: lines(count, "kN: !x text").encode(), parse_documents, 1_000),
    "anchors": Shape(lambda count: lines(count, "kN: &aN [text]").encode(), parse_documents, 1_000),
    "aliases": Shape(lambda count: b"a: &a [text]\n" + lines(count, "kN: *a").encode(), parse_documents, 400),
    "merges": Shape(
        lambda count: b"a: &a {x: text}\n" + lines(count, "kN: {<<: *a, y: z}").encode(), parse_documents, 400
    ),
    "one merge of many": Shape(
        lambda count: (
            lines(count, "aN: &aN {xN: text}").encode() + b"\nk: {<<: [" + lines(count, "*aN", ", ").encode() + b"]}"
        ),
        parse_documents,
        400,
    ),
    "merges of as many keys": Shape(
        lambda count: (
            b"a: &a {" + lines(count, "xN: text", ", ").encode() + b"}\n" + lines(count, "kN: {<<: *a}").encode()
        ),
        parse_documents,
        100,
    ),
    "aliases of aliases": Shape(
        lambda count: (
            b"a0: &a0 [x]\n" + b"\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]".encode() for n in range(1, count))
        ),
        parse_documents,
        400,
    ),
    "documents": Shape(lambda count: lines(count, "k: text N", "\n---\n").encode(), parse_documents, 500),
    "lines of a text": Shape(lambda count: b"k: |\n" + lines(count, "  text N").encode(), parse_documents, 2_000),
    "comments": Shape(lambda count: lines(count, "# text N").encode() + b"\nk: v", parse_documents, 2_000),
    "brackets": Shape(lambda count: b"[" * count + b"]" * count, parse_documents, 2_000),
    "a long text": Shape(lambda count: b'k: "' + b"\\n" * count + b'"', parse_documents, 20_000),
    "a long number": Shape(lambda count: b"k: " + b"1" * count, parse_documents, 20_000),
    "a long key": Shape(lambda count: b"? " + b"k" * count + b"\n: v", parse_documents, 20_000),
    "blanks": Shape(lambda count: b"k:" + b" " * count + b"v", parse_documents, 20_000),
    "empty lines": Shape(lambda count: b"\n" * count + b"k: v", parse_documents, 20_000),
    "JSON": Shape(
        lambda count: b"{" + lines(count, '"kN": {"a": [1, "b"]}', ",").encode() + b"}", parse_documents, 500
    ),
    "JSON with escapes": Shape(
        lambda count: b"{" + lines(count, r'"kN": "\ud83d\ude00"', ",").encode() + b"}", parse_documents, 500
    ),
}


def setting_shapes() -> dict[str, Shape]:
    """Every list and mapping of the settings."""
    return {
        ".".join(map(str, path)): Shape(
            lambda count, document=document, at=at: json.dumps(grown(document, at, count)), read_settings, 300
        )
        for path, (document, at) in growing_values("settings").items()
    }
