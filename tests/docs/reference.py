"""docs/reference.md: what the platform does with manifests and no check can tell."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from reconciler.documents.schema.loader import load_schema
from reconciler.manifests.rules.container.buckets import HOSTS
from reconciler.model.key import Kind
from reconciler.model.kinds.permissions import PERMISSIONS, expanded
from tests.docs.tables import table

HEAD = """\
# Reference

What the platform does with what manifests say, where it helps to know and no [rule](rules.md) can check it.
"""

SPEED = (
    ("general-purpose-ssd", "aws", "750 MB/s", "3,000"),
    ("general-purpose-ssd", "gcp", "1,200 MB/s", "80,000"),
    ("general-purpose-ssd", "azure", "750 MB/s", "6,000"),
    ("premium-low-latency-ssd", "aws", "1,000 MB/s", "5 for each GB"),
    ("premium-low-latency-ssd", "gcp", "1,200 MB/s", "100,000"),
    ("premium-low-latency-ssd", "azure", "900 MB/s", "20,000"),
)
"""Class, provider, throughput and operations a second (docs/platform/volumeset.md#performance-classes)."""

ROLES = {
    "s3": "reading its objects",
    "gs": "reading the bucket and its objects; the platform's own service account is a storage admin besides",
    "azureblob": "a reader's role on the container",
    "azurefs": "a reader's role on the share",
}
"""What the cloud access of an identity grants at least, by scheme (docs/platform/workload.md#object-stores)."""
NAMES = {
    "s3": "s3://BUCKET", "gs": "gs://BUCKET", "azureblob": "azureblob://ACCOUNT/CONTAINER",
    "azurefs": "azurefs://ACCOUNT/SHARE",
}  # fmt: skip
WRITABLE = frozenset({"azurefs"})

AS_TEXT = "A directory with one file, `___platform___.secret`, that holds the text. The path has at least two segments."
BY_KEY = (
    "With a whole secret, a directory with a file for each key, and `___platform___.secret` with all of them as JSON; "
    "with one key (`platform://secret/NAME.KEY`), a file with its value."
)
PAYLOAD = (
    "A file with the payload, if need be decoded from base64. With one segment, the path is a directory and the file "
    "in it is `payload`; with more, the last one is the file."
)
MOUNTED = {"opaque": PAYLOAD, **dict.fromkeys(("docker", "gcp", "azure-sdk"), AS_TEXT)}
"""How a secret of a type is mounted, where it is not by key (docs/platform/workload.md#secrets-as-files)."""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, _speed(), _clusters(), _stores(), _secrets(), *_permissions()])


def _speed() -> str:
    return (
        "## How fast volumes are\n\nAt most, and for all volumes of an instance together. Operations a second grow "
        "with the capacity, so that only large volumes come near.\n\n"
        + table(("Performance class", "Provider", "Throughput", "Operations a second"), SPEED)
    )


def _clusters() -> str:
    spec = load_schema("volumeset")["properties"]["spec"]["properties"]
    classes, systems = spec["performanceClass"]["enum"], spec["fileSystemType"]["enum"]
    names = [f"{one}-{other}{end}" for end in ("", "-command") for one, other in product(classes, systems)]
    listed = "\n".join(f"- `{name}`" for name in names)
    return (
        "## Storage classes of a cluster of your own\n\nVolume sets work at a location that is your own cluster where "
        "that has a CSI driver for storage, and storage classes of that driver with exactly these names:\n\n"
        f"{listed}\n"
    )


def _stores() -> str:
    rows = (
        (f"`{NAMES[scheme]}`", "read and write" if scheme in WRITABLE else "read only", f"`{host}`", ROLES[scheme])
        for scheme, (_, host) in HOSTS.items()
    )
    return (
        "## Object stores as volumes\n\nThey are read with the cloud access of the workload's identity and by nothing "
        "that a container brings along; what the firewall lets out has to include them. They are billed to the "
        "workload: its container `platform-mounter` in the metrics shows what they cost. How they are cached, and "
        "when they time out, cannot be set.\n\n"
        + table(("Volume", "Mode", "Host name to let out to", "The identity's cloud access grants at least"), rows)
    )


def _secrets() -> str:
    types = load_schema("secret")["properties"]["type"]["enum"]
    ways = dict.fromkeys(MOUNTED.get(name, BY_KEY) for name in types)
    rows = ((", ".join(f"`{name}`" for name in types if MOUNTED.get(name, BY_KEY) == way), way) for way in ways)
    return (
        "## Secrets as volumes\n\nA volume with `platform://secret/NAME` is read only, and the workload's identity "
        "may `reveal` the secret. What is at its path follows from the secret's type:\n\n"
        + table(("Type", "At the path"), rows)
    )


def _permissions() -> Iterator[str]:
    yield (
        "## Permissions\n\nWhat a policy can permit on each kind, and what a permission brings along with it, "
        "directly or by way of another one.\n"
    )
    for kind in sorted(PERMISSIONS):
        rows = ((f"`{name}`", _brought(kind, name)) for name in sorted(PERMISSIONS[kind]))
        yield f"### {kind}\n\n" + table(("Permission", "Brings along"), rows)


def _brought(kind: Kind, name: str) -> str:
    more = expanded(kind, [name]) - {name}
    return "all" if len(more) == len(PERMISSIONS[kind]) - 1 > 1 else ", ".join(f"`{each}`" for each in sorted(more))
