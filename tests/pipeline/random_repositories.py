"""Random desired states that fit together, as files of a repository."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from tests.support.git import File
from tests.support.pipeline import PLACES

DesiredState = dict[str, dict[str, Any]]
"""Key to manifest."""

AFAR = "//location/afar"
"""A location that exists and that the settings bind to no engine."""

READER = "reader"
"""The identity of each GVC that may read every secret."""

PAIRS = ("", "a", "b", "ab")
"""Which of two there are."""

volumesets = st.sampled_from(PAIRS)
identities = st.sampled_from(PAIRS)


@st.composite
def workloads(draw: st.DrawFn, name: str, earlier: list[str], own: dict[str, list[str]]) -> dict[str, Any]:
    """A workload that refers to what there is; ``own`` lists places, and what is left of the rest."""
    kind = draw(st.sampled_from(["serverless", "standard", "stateful", "cron"]))
    container: dict[str, Any] = {"name": "main", "image": draw(st.sampled_from(["nginx:1", "nginx:2"]))}
    if kind == "serverless":
        container["ports"] = [{"number": 8080}]
    identity = draw(st.sampled_from(["", *own["identity"]]))
    if own["secret"] and draw(st.booleans()):
        identity = READER
        container["env"] = [{"name": "S", "value": f"platform://secret/{draw(st.sampled_from(own['secret']))}"}]
    if kind == "stateful":
        taken = [own["volumeset"].pop() for _ in range(draw(st.integers(0, len(own["volumeset"]))))]
        container["volumes"] = [{"uri": f"platform://volumeset/{one}", "path": f"/{one}"} for one in taken]
    spec: dict[str, Any] = {"type": kind, "containers": [container]}
    if kind == "cron":
        spec["job"] = {"schedule": "0 * * * *"}
    else:
        spec["defaultOptions"] = {
            "debug": draw(st.booleans()),
            "autoscaling": {"maxScale": draw(st.integers(2, 4))},
        }
        if "here" in own["place"] and draw(st.booleans()):
            spec["localOptions"] = [{"location": "here", "debug": draw(st.booleans())}]
    if identity:
        spec["identityLink"] = f"//identity/{identity}"
    tags = {"reconciler/allow-replace": "true"}
    if earlier and draw(st.booleans()):
        tags["reconciler/depends-on"] = draw(st.sampled_from(earlier))
    return {"kind": "workload", "name": name, "tags": tags, "spec": spec}


@st.composite
def desired_states(draw: st.DrawFn) -> DesiredState:
    """Up to two GVCs with everything in them, and the secrets they share; links lead only to what is there."""
    resources: DesiredState = {}
    secrets = list(draw(st.sampled_from(PAIRS)))
    for name in secrets:
        data = {"value": draw(st.sampled_from(["one", "two"]))}
        resources[f"secret/{name}"] = {"kind": "secret", "name": name, "type": "dictionary", "data": data}
    for gvc in draw(st.sampled_from(["x", "y", "xy", "xy"])):
        places = draw(st.sampled_from([PLACES, PLACES, PLACES[:1], PLACES[1:], ("here", "afar"), ("afar",)]))
        links = [f"//location/{place}" for place in places]
        resources[f"gvc/{gvc}"] = {"kind": "gvc", "name": gvc, "spec": {"staticPlacement": {"locationLinks": links}}}
        own = {
            "identity": list(draw(identities)),
            "volumeset": list(draw(volumesets)),
            "secret": secrets,
            "place": list(places),
        }
        for name in [*own["identity"], READER]:
            resources[f"identity/{gvc}/{name}"] = {"kind": "identity", "name": name}
        for name in own["volumeset"]:
            spec = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"}
            resources[f"volumeset/{gvc}/{name}"] = {"kind": "volumeset", "name": name, "spec": spec}
        earlier: list[str] = []
        for name in draw(st.sampled_from(["", "k", "kl", "klm", "lm"])):
            resources[f"workload/{gvc}/{name}"] = draw(workloads(name, earlier, own))
            earlier.append(f"workload/{gvc}/{name}")
    if secrets:
        readers = [f"//gvc/{key.partition('/')[2]}/identity/{READER}" for key in resources if key.startswith("gvc/")]
        reveal = {"permissions": ["reveal"], "principalLinks": readers}
        resources["policy/readers"] = {
            "kind": "policy",
            "name": "readers",
            "targetKind": "secret",
            "target": "all",
            "bindings": [reveal],
        }
    return resources


def files_of(resources: DesiredState, layout: int) -> dict[str | bytes, File]:
    """``resources`` as files; another ``layout`` uses other files, some in JSON, with or without naming the GVC."""
    placed: dict[str, list[str]] = {}
    for key, manifest in resources.items():
        gvc = manifest["name"] if manifest["kind"] == "gvc" else key.split("/")[1] if key.count("/") == 2 else ""
        turn = crc32(f"{key} {layout}".encode()) % 3
        if manifest["kind"] == "gvc":
            path = f"{gvc}/gvc.yaml"
        elif not gvc:
            path = f"_org/{turn}.yaml"
        elif turn:
            path = f"{gvc}/{'deep/' * (turn - 1)}{manifest['kind']}.yaml"
        else:
            path, manifest = "all.yaml", manifest | {"gvc": gvc}
        placed.setdefault(path, []).append(json.dumps(manifest))
    return dict(_file(path, documents, layout) for path, documents in placed.items())


def _file(path: str, documents: list[str], layout: int) -> tuple[str, str]:
    if crc32(f"{path} {layout}".encode()) % 3:
        return path, "\n---\n".join(documents) + "\n"
    return path.replace(".yaml", ".json"), "[" + ",\n".join(documents) + "]\n"
