"""Hostile files: bombs of depth, width, length and number, each of them in every surrounding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

KIB, MIB = 1 << 10, 1 << 20

WORKLOAD = (
    b"kind: workload\nname: web\ngvc: shop\nspec:\n  type: standard\n  containers:\n  - name: main\n    image: n:1\n"
)
SHARING = """---
{kind: workload, name: w@, gvc: shop, spec: {type: stateful, containers: [{name: m, image: 'n:1',
volumes: [{uri: platform://volumeset/v, path: /a}]}]}}
"""
NEARLY = """---
{kind: workload, name: w@, gvc: shop, spec: {type: standard, identityLink: //identity/many-nmaes-that-are-quite-alike-@,
containers: [{name: m, image: 'n:1'}]}}
"""
VOLUMES = WORKLOAD + b"    volumes:\n"

PIECES = {
    "open brackets": (b"[", b""),
    "brackets": (b"[", b"]"),
    "open braces": (b"{", b""),
    "braces": (b"{a: ", b"}"),
    "brackets and braces": (b"[{", b""),
    "dashes": (b"- ", b""),
    "question marks": (b"? ", b""),
    "colons": (b": ", b""),
    "commas": (b",", b""),
    "keys in brackets": (b"{? [", b""),
    "tags": (b"!!str ", b""),
    "anchors": (b"&a ", b""),
    "aliases": (b"*a ", b""),
    "quotes": (b'"', b""),
    "apostrophes": (b"'", b""),
    "backslashes": (b'"\\\\"', b""),
    "bars": (b"|\n", b""),
    "percent signs": (b"%", b""),
    "directives": (b"%TAG !a! x\n", b""),
    "separators": (b"---\n", b""),
    "ends": (b"...\n", b""),
    "comments": (b"# reconciler: ignore x\n", b""),
    "tabs": (b"\t", b""),
    "carriage returns": (b"\r", b""),
    "tabs and carriage returns": (b"\t\r", b""),
    "line feeds": (b"\n", b""),
    "spaces": (b" ", b""),
    "line separators": ("\u2028".encode(), b""),
    "next lines": ("\x85".encode(), b""),
    "byte order marks": ("\ufeff".encode(), b""),
    "bidirectional controls": ("\u202e".encode(), b""),
    "combining marks": ("\u0301".encode(), b""),
    "letters": (b"a", b""),
    "digits": (b"9", b""),
    "words": (b"a ", b""),
    "keys": (b"a: ", b""),
    "lines of keys": (b"a:\n", b""),
    "merges": (b"<<: ", b""),
    "nulls": (b"~,", b""),
    "lines of dashes": (b"\n- ", b""),
    "escapes": (b'"\\u202e"', b""),
    "halves of pairs": (b'"\\ud83d\\ude00"', b""),
    "encrypted": (b"ENC[AES256_GCM,data:QQ==,iv:QQ==,tag:QQ==,type:str]\n", b""),
    "sops": (b"sops:\n", b""),
}
"""What is repeated: the beginning, and the end that belongs to it."""

AROUND = {
    "alone": (b"", b""),
    "in a field": (b"kind: workload\nname: web\nspec: ", b"\n"),
    "in a secret": (b"kind: secret\nname: a\ntype: opaque\ndata: ", b"\n"),
    "behind sops": (b'sops: {mac: "", lastmodified: ""}\n---\n', b"\n"),
    "below sops": (b'kind: secret\nname: a\ntype: opaque\nsops: {mac: "", lastmodified: ""}\ndata: ', b"\n"),
    "in brackets": (b"kind: [", b"]"),
    "in quotes": (b'kind: gvc\nname: a\ndescription: "', b'"\n'),
    "in a comment": (b"kind: gvc\nname: a\n# ", b"\n"),
    "in JSON": (b'{"kind": "gvc", "name": "a", "description": "', b'"}'),
    "as a key": (b'kind: gvc\nname: a\ntags:\n  "', b'": x\n'),
}
"""Where it stands."""


def repeated(piece: str, size: int) -> Iterator[tuple[str, bytes]]:
    """A piece in every surrounding, about ``size`` bytes each."""
    begin, end = PIECES[piece]
    count = size // len(begin + end)
    for where, (before, behind) in AROUND.items():
        yield where, before + begin * count + end * count + behind


def numbered(form: str, count: int) -> bytes:
    """``form`` for each number below ``count``, which stands in it as ``@``."""
    return "".join(form.replace("@", str(number)) for number in range(count)).encode()


def flow(**fields: Any) -> bytes:
    """A document as JSON."""
    return json.dumps(fields).encode()


def ladder(levels: int) -> bytes:
    """Mappings in block style, one in the other."""
    return b"".join(b" " * level + b"a:\n" for level in range(levels))


def laughs(levels: int) -> bytes:
    """Aliases of lists of aliases."""
    lines = [b'a0: &a0 ["x", "x"]']
    lines += [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, levels)]
    return b"\n".join(lines)


GVC = "---\nkind: gvc\nname: shop\nspec:\n  staticPlacement: {locationLinks: [//location/a]}\n"
QUERY = "{kind: location, spec: {match: all, terms: [{op: '=', tag: t, value: x}]}}"
IDENTITY = "---\n{kind: identity, name: i, gvc: shop}\n"
SECRET = "---\n{kind: secret, name: s@, type: opaque, data: {payload: x}}\n"
HOLDER = """---
{kind: workload, name: w@, gvc: shop, spec: {type: standard, identityLink: //identity/i, containers: [
{name: m, image: 'n:1', inheritEnv: true, env: [{name: A, value: %s}]}]}}
"""
POLICY = """---
{kind: policy, name: p@, targetKind: secret, %s,
bindings: [{permissions: [%s], principalLinks: [//gvc/shop/identity/i]}]}
"""
BY_NAME = "targetQuery: {kind: secret, spec: {match: all, terms: [{op: '~', property: name, value: 'x*@'}]}}"


def shared(variable: str, value: str, count: int = 1_500) -> bytes:
    """A GVC with 10,000 times ``variable``, and ``count`` workloads that inherit them, with ``value`` in one more."""
    head = f"{GVC}  env:\n".encode()
    return head + numbered(f"  - {variable}\n", 10_000) + IDENTITY.encode() + numbered(HOLDER % value, count)


def circle(number: int) -> str:
    """A group that waits for itself, so named that the last one comes first."""
    name = f"g{9_999 - number}"
    return f"---\n{{kind: group, name: {name}, tags: {{reconciler/depends-on: //group/{name}}}}}\n"


def clique(size: int) -> bytes:
    """Groups that all wait for each other."""
    links = " ".join(f"//group/g{number}" for number in range(size))
    return numbered(f"---\n{{kind: group, name: g@, tags: {{reconciler/depends-on: {links}}}}}\n", size)


NEIGHBOURS: dict[str, Callable[[], bytes]] = {
    "variables that no GVC sets": lambda: shared("{name: V@, value: x}", "$(W@)"),
    "variables that a large GVC sets": lambda: shared("{name: V@, value: x}", "$(V1@)"),
    "variables of a GVC that lead to each other": lambda: shared("{name: V@, value: $(V1@)$(A)}", "$(V1)"),
    "secrets of a GVC that nobody may reveal": lambda: (
        numbered(SECRET, 1_000) + shared("{name: V@, value: 'platform://secret/s@'}", "x", 1_000)
    ),
    "keys that a large secret does not have": lambda: (
        b"kind: secret\nname: s\ntype: dictionary\ndata:\n"
        + numbered("  key@: v\n", 45_000)
        + IDENTITY.encode()
        + numbered(HOLDER % "'platform://secret/s.kay@'", 1_500)
    ),
    "circles whose names stand in reverse order": lambda: "".join(map(circle, range(2_000))).encode(),
    "circles of all with all": lambda: clique(150),
    "many policies of one identity": lambda: (
        IDENTITY.encode()
        + numbered(SECRET, 1_000)
        + numbered(POLICY % ("targetLinks: [//secret/s0]", "view"), 1_000)
        + numbered(POLICY.replace("p@", "q@") % ("targetLinks: [//secret/s1]", "reveal"), 500)
        + numbered(HOLDER % "'platform://secret/s@'", 1_000)
    ),
    "many policies with a query": lambda: (
        IDENTITY.encode()
        + numbered(SECRET, 1_000)
        + numbered(POLICY % (BY_NAME, "reveal"), 1_000)
        + numbered(HOLDER % "'platform://secret/s@'", 1_000)
    ),
    "many faulty policies": lambda: (
        IDENTITY.encode()
        + numbered(SECRET, 1_000)
        + numbered(POLICY % ("wrong: 1, targetLinks: [" + "//secret/x," * 200 + "]", "reveal"), 400)
        + numbered(HOLDER % "'platform://secret/s@'", 1_000)
    ),
    "options for other locations than a GVC has": lambda: (
        b"---\n{kind: gvc, name: shop, spec: {staticPlacement: {locationLinks: ["
        + numbered("//location/l@,", 4_000)
        + b"]}}}\n"
        + numbered(HOLDER.replace("spec: {", "spec: {localOptions: [{location: //location/x@}], ") % "x", 1_500)
    ),
    "many queries for many locations": lambda: (
        numbered("---\n{kind: location, name: aws-l@, provider: byok}\n", 1_500)
        + numbered("---\n{kind: gvc, name: g@, spec: {staticPlacement: {locationQuery: " + QUERY + "}}}\n", 1_500)
    ),
    "a query of many stars": lambda: (
        f"---\n{{kind: location, name: aws-l, provider: byok, tags: {{t: {'a' * 200}}}}}\n---\n"
        "{kind: gvc, name: g, spec: {staticPlacement: {locationQuery: {kind: location, spec: {match: all, terms: ["
        f"{{op: '~', tag: t, value: '{'*a' * 30}*b'}}]}}}}}}}}}}\n"
    ).encode(),
    "routes to many workloads": lambda: (
        numbered(
            HOLDER.replace("env:", "readinessProbe: {tcpSocket: {port: 8080}}, ports: [{number: 8080}], env:") % "x",
            2_000,
        )
        + b"---\n{kind: domain, name: d.example.com, spec: {ports: [{number: 443, protocol: http2, routes: ["
        + numbered("{prefix: /a@, workloadLink: //gvc/shop/workload/w@, port: 81},", 2_000)
        + b"]}]}}\n"
    ),
    "missing members of groups": lambda: numbered(
        "---\n{kind: group, name: g@, memberLinks: [" + "".join(f"//serviceaccount/s{n}," for n in range(30)) + "]}\n",
        1_500,
    ),
}
"""Bombs of resources that each refer to many others."""

WIDE: dict[str, Callable[[], bytes]] = {
    "a ladder of mappings": lambda: ladder(1_000),
    "a ladder of mappings below sops": lambda: b'sops: {mac: "", lastmodified: ""}\n' + ladder(1_000),
    "an alias bomb": lambda: laughs(10),
    "an alias bomb below sops": lambda: b'sops: {mac: "", lastmodified: ""}\n' + laughs(10),
    "many anchors": lambda: numbered("a@: &a@ x\n", 90_000),
    "many aliases": lambda: b"a: &a x\nb: [" + b"*a," * 1_000 + b"]\n",
    "merges of large mappings": lambda: b"a: &a {" + numbered("k@: 1,", 500) + b"}\nb: {<<: [" + b"*a," * 900 + b"]}",
    "many keys": lambda: b"kind: gvc\nname: a\n" + numbered("k@: 1\n", 45_000),
    "many tags": lambda: b"kind: gvc\nname: a\ntags:\n" + numbered("  k@: 1\n", 45_000),
    "one key again and again": lambda: b"kind: gvc\n" + b"name: a\n" * 90_000,
    "keys twice each": lambda: numbered("k@: 1\nk@: 1\n", 20_000),
    "many documents of many values": lambda: b"---\n".join(
        [b"kind: gvc\nname: a\nspec: [" + b"1," * 140 + b"]\n"] * 4_999
    ),
    "many workloads that share a volume set": lambda: numbered(SHARING, 800),
    "many workloads of an unclear GVC": lambda: (
        numbered("---\n{kind: gvc, name: g@, spec: {staticPlacement: {locationLinks: [//location/a]}}}\n", 1_500)
        + numbered("---\n{kind: workload, name: w@, spec: {containers: [{name: m, image: 'n:1'}]}}\n", 1_500)
    ),
    "many wrong workloads of an unclear GVC": lambda: (
        numbered("---\n{kind: gvc, name: g@, spec: {staticPlacement: {locationLinks: [//location/a]}}}\n", 1_500)
        + numbered("---\n{kind: workload, name: w@, spec: {containers: 1}}\n", 1_500)
    ),
    "many documents": lambda: b"---\n".join([b"kind: gvc\nname: a\n"] * 4_999),
    "too many documents": lambda: b"--- {a: 1}\n" * 10_000,
    "many wrong documents": lambda: b"---\n".join([b"kind: identity\nnam: x\n"] * 4_900),
    "many encrypted documents": lambda: b"---\n".join(
        [b'kind: secret\nname: a\ntype: opaque\ndata: {}\nsops: {mac: "", lastmodified: ""}\n'] * 4_900
    ),
    "many documents with a tag of their own": lambda: b"---\n".join([b"!x kind\n"] * 4_900),
    "a wide list": lambda: b"kind: [" + b"1," * 90_000 + b"]",
    "a list of wrong values": lambda: b"kind: gvc\nname: a\nspec: [" + b"no," * 90_000 + b"]",
    "deep and wide": lambda: b"kind: gvc\nname: a\nspec: " + b"[" * 60 + b"1," * 90_000 + b"]" * 60,
    "deep and wide below sops": lambda: (
        b'kind: secret\nname: a\nsops: {mac: "", lastmodified: ""}\ndata: ' + b"[" * 60 + b"1," * 90_000 + b"]" * 60
    ),
    "several deep and wide documents": lambda: b"\n---\n".join([b"[" * 60 + b"1," * 90_000 + b"]" * 60] * 5),
    "many wide documents": lambda: b"\n---\n".join([b"[" + b"1," * 90_000 + b"]"] * 60),
    "many wide documents with sops": lambda: b"\n---\n".join(
        [b'{sops: {mac: "", lastmodified: ""}, a: [' + b"1," * 90_000 + b"]}"] * 60
    ),
    "many variables": lambda: WORKLOAD + b"    env:\n" + numbered("    - {name: A@, value: x}\n", 15_000),
    "many variables of one name": lambda: WORKLOAD + b"    env:\n" + b"    - {name: A, value: x}\n" * 15_000,
    "many variables that name others": lambda: (
        WORKLOAD + b"    env:\n" + numbered("    - {name: A@, value: $(A1)$(B@)}\n", 10_000)
    ),
    "many variables from secrets": lambda: (
        WORKLOAD + b"    env:\n" + numbered("    - {name: A@, value: 'platform://secret/s@.k'}\n", 10_000)
    ),
    "many ports": lambda: WORKLOAD + b"    ports:\n" + numbered("    - {number: @}\n", 20_000),
    "many volumes": lambda: VOLUMES + numbered("    - {uri: 'scratch://a@', path: /a/b@}\n", 9_000),
    "many containers": lambda: WORKLOAD + numbered("  - {name: c@, image: 'n:1', port: 8080}\n", 9_000),
    "many arguments": lambda: WORKLOAD + b"    args:\n" + numbered("    - a@\n", 40_000),
    "many headers": lambda: (
        WORKLOAD
        + b"    readinessProbe: {httpGet: {path: /, httpHeaders: ["
        + numbered("{name: A@, value: x},", 9_000)
        + b"]}}\n"
    ),
    "a long image": lambda: WORKLOAD.replace(b"n:1", b"n" * 900_000),
    "an image of many parts": lambda: WORKLOAD.replace(b"n:1", b"n/" * 400_000 + b"n"),
    "a long name": lambda: b"kind: gvc\nname: " + b"a" * 900_000,
    "a name of dashes": lambda: b"kind: gvc\nname: a" + b"-" * 900_000,
    "a long kind": lambda: b"kind: " + b"g" * 900_000,
    "a long link": lambda: b"kind: gvc\nname: a\nspec: {staticPlacement: {locationLinks: [" + b"/" * 900_000 + b"]}}",
    "many links": lambda: (
        b"kind: gvc\nname: a\nspec: {staticPlacement: {locationLinks: [" + numbered("//location/a@,", 20_000) + b"]}}"
    ),
    "a long schedule": lambda: (
        WORKLOAD.replace(b"standard", b"cron") + b"  job:\n    schedule: '" + b"*/1," * 100_000 + b"*/1 * * * *'\n"
    ),
    "a long uri": lambda: VOLUMES + b"    - {uri: 'platform://secret/" + b"a." * 400_000 + b"', path: /a/b}\n",
    "a long path": lambda: VOLUMES + b"    - {uri: 'scratch://a', path: '" + b"/a" * 400_000 + b"'}\n",
    "a long variable": lambda: WORKLOAD + b"    env:\n    - {name: " + b"A" * 900_000 + b", value: x}\n",
    "a value of many variables": lambda: WORKLOAD + b"    env:\n    - {name: A, value: '" + b"$(A)" * 200_000 + b"'}\n",
    "a value of open variables": lambda: WORKLOAD + b"    env:\n    - {name: A, value: '" + b"$(" * 400_000 + b"'}\n",
    "a value of dollars": lambda: WORKLOAD + b"    env:\n    - {name: A, value: '" + b"$" * 900_000 + b"'}\n",
    "a long quantity": lambda: WORKLOAD + b"    cpu: '" + b"1" * 900_000 + b"m'\n",
    "many firewall addresses": lambda: (
        WORKLOAD + b"  firewallConfig: {external: {inboundAllowCIDR: [" + numbered("10.0.@.0/24,", 20_000) + b"]}}\n"
    ),
    "a long host name": lambda: (
        WORKLOAD + b"  firewallConfig: {external: {outboundAllowHostname: ['" + b"a." * 400_000 + b"']}}\n"
    ),
    "many bindings": lambda: (
        b"kind: policy\nname: p\ntargetKind: secret\ntarget: all\nbindings:\n"
        + numbered("- {permissions: [reveal], principalLinks: [//user/u@]}\n", 9_000)
    ),
    "a long certificate": lambda: (
        b"kind: secret\nname: a\ntype: tls\ndata:\n  key: |\n"
        + b"    -----BEGIN PRIVATE KEY-----\n" * 25_000
        + b"  cert: x\n"
    ),
    "a long dictionary": lambda: b"kind: secret\nname: a\ntype: dictionary\ndata:\n" + numbered("  k@: v\n", 45_000),
    "a long query": lambda: (
        b"kind: group\nname: a\nspec: {}\nmemberQuery: {kind: user, spec: {match: all, terms: ["
        + numbered("{op: '=', tag: t@, value: x},", 9_000)
        + b"]}}\n"
    ),
    "many unknown fields": lambda: WORKLOAD + numbered("    f@: 1\n", 40_000),
    "many wrong types": lambda: WORKLOAD + b"    env: [" + b"1," * 80_000 + b"]\n",
    "many ignore comments": lambda: b"kind: gvc\nname: a\n" + b"# reconciler: ignore a b\n" * 40_000,
    "ignore comments above a warning": lambda: b"# reconciler: ignore x y\n" * 30_000 + WORKLOAD,
    "a comment with nothing but spaces": lambda: b"kind: gvc\nname: a\n# reconciler: ignore x" + b" " * 900_000 + b"\n",
    "hash signs": lambda: b"kind: gvc\nname: a # reconciler:" + b" #" * 400_000 + b"\n",
    "many links that nearly lead somewhere": lambda: (
        numbered("---\n{kind: identity, gvc: shop, name: many-names-that-are-quite-alike-@}\n", 1_900)
        + numbered(NEARLY, 1_900)
    ),
    "one long JSON": lambda: flow(kind="gvc", name="a", tags={f"k{n}": "\U0001f600" * 3 for n in range(20_000)}),
    "encrypted JSON": lambda: flow(kind="secret", name="\U0001f600", sops={"mac": "", "lastmodified": ""}),
    "sops with many recipients": lambda: (
        b'kind: secret\nname: a\nsops:\n  mac: ""\n  lastmodified: ""\n  age:\n'
        + b"  - {recipient: x, enc: x}\n" * 20_000
    ),
    "sops with a long pattern": lambda: (
        b'kind: secret\nname: a\nsops: {mac: "", lastmodified: "", encrypted_regex: "' + b"(a+)+" * 150_000 + b'"}\n'
    ),
}
"""Bombs that are no mere repetition of one piece; a document of each has less than a megabyte."""

PAIRS = b"\\ud83d\\ude00"
"""One character as JSON escapes it, in two halves."""

HUGE: dict[str, Callable[[], bytes]] = {
    "a hundred megabytes": lambda: b"a: " + b"x" * (100 * MIB),
    "a hundred megabytes of comment": lambda: b"# " + b"x" * (100 * MIB),
    "a hundred megabytes of lines": lambda: b"a\n" * (50 * MIB),
    "just within the size of a file": lambda: b"# " + b"x" * (16 * MIB - 2),
    "sixteen megabytes of lines": lambda: b"#\n" * (8 * MIB),
    "sixteen megabytes of line feeds": lambda: b"\n" * (16 * MIB),
    "sixteen megabytes of documents": lambda: b"---\n".join(
        [b"kind: gvc\nname: a\ndescription: " + b"x" * 4_000 + b"\n"] * 4_100
    ),
    "sixteen megabytes of large documents": lambda: b"---\n".join(
        [b"kind: gvc\nname: a\ndescription: " + b"x" * 1_000_000 + b"\n"] * 16
    ),
    "sixteen megabytes with a tab at the end": lambda: b"a: b\n" * (3 * MIB) + b"\tx\n",
    "sixteen megabytes of letters": lambda: b"a" * (16 * MIB),
    "sixteen megabytes behind sops": lambda: b"sops: {}\n---\n" + b"#\n" * (7 * MIB),
    "fifteen megabytes of halves of pairs": lambda: (
        b'{"kind": "gvc", "name": "a", "description": "' + PAIRS * (15 * MIB // 12) + b'"}'
    ),
    "fifteen megabytes of strings of one pair": lambda: b'{"tags": [' + (b'"' + PAIRS + b'",') * MIB + b"1]}",
    "fifteen megabytes of empty lists behind a pair": lambda: b'["' + PAIRS + b'",' + b"[]," * (5 * MIB) + b"1]",
    "sixteen megabytes of wide documents": lambda: b"\n---\n".join([b"[" + b"1," * 90_000 + b"]"] * 90),
}
"""Bombs of size."""
