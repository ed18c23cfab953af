"""The image of the sandbox, made here and never pulled: a program that occupies the blocked ports and sleeps.

For x86-64 the program is 300 bytes of our own, assembled from this text, whose list of ports follows the code. It
listens on [::] at each port (on 0.0.0.0 without IPv6) and pauses; where that fails, it ends with 98 (EADDRINUSE):

    lea rbx, ports; next: movzx r12d, [rbx]; jz sleep; socket(AF_INET6, SOCK_STREAM, 0); bind([::]:r12); listen(0)
    add rbx, 2; jmp next; failed: once more with AF_INET, then exit(98); sleep: pause(); jmp sleep

Other machines use catatonit of this host, which occupies nothing.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

REPOSITORY = "localhost/reconciler-pause"
CATATONIT = (Path("/usr/libexec/podman/catatonit"), Path("/usr/bin/catatonit"))
"""Where distributions install it; it is linked statically."""
_CODE = bytes.fromhex(
    "488d1d9b000000440fb7234585e40f848400000041bd0a0000004489efbe0100000031d2b8290000000f0585c0784f4189c64883ec2031c0"
    "488904244889442408488944241048894424186644892c246644896424024489f74889e6ba1c000000b8310000000f0585c078124489f731"
    "f6b8320000000f054883c302eb894183fd02740841bd02000000eb8ebf62000000b83c0000000f05b8220000000f05ebf790"
)
_DENIED = (
    "add_key bpf delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick init_module io_uring_setup "
    "kexec_file_load kexec_load keyctl mount mount_setattr move_mount open_by_handle_at open_tree perf_event_open "
    "pivot_root process_vm_readv process_vm_writev ptrace quotactl reboot request_key setns swapoff swapon umount "
    "umount2 unshare userfaultfd"
)
_SECCOMP_LABEL = "io.containers.seccomp.profile"
"""Where Podman finds the filter of system calls that an image brings.

Podman's own takes 15 ms of CPU to build, at each start, for a program that nobody can change and that has no
capabilities. The OCI runtime makes some calls of its own under the filter, so this one denies instead of allowing.
"""
_BASE, _HEADERS = 0x400000, 64 + 56
_PROGRAM = "pause"
_OCI = "application/vnd.oci.image"


class PauseImage(msgspec.Struct, frozen=True):
    """The reference of the image, which changes with its content, and the archive to load."""

    reference: str
    archive: bytes


def pause_image(architecture: str, ports: Iterable[int]) -> PauseImage | None:
    """The image for ``architecture`` (as Podman spells it); None if this host has no program for it."""
    if occupies_ports(architecture):
        return _build_pause_image(_build_elf_program(sorted(ports)), [f"/{_PROGRAM}"], architecture)
    program = next((path for path in CATATONIT if path.is_file()), None)
    return (
        _build_pause_image(program.read_bytes(), [f"/{_PROGRAM}", "-P"], architecture) if program is not None else None
    )


def occupies_ports(architecture: str) -> bool:
    """Whether the sandbox occupies the blocked ports on this architecture."""
    return architecture in ("amd64", "x86_64")


def _build_elf_program(ports: Iterable[int]) -> bytes:
    """A static program of one segment."""
    # A port of zero ends the list.
    body = _CODE + b"".join(struct.pack("!H", port) for port in ports) + b"\0\0"
    size = _HEADERS + len(body)
    magic = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 4096)
    return magic + head + segment + body


def _build_pause_image(program: bytes, entrypoint: list[str], architecture: str) -> PauseImage:
    """An OCI archive with one layer, the same bytes each time."""
    layer = _build_tar_archive({_PROGRAM: program}, mode=0o755)
    blobs: dict[str, bytes] = {}

    def add(content: bytes, kind: str) -> dict[str, Any]:
        digest = sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Labels": {_SECCOMP_LABEL: _seccomp_profile()}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": add(json.dumps(config).encode(), f"{_OCI}.config.v1+json"),
        # A time in it would change the digests of the same content.
        "layers": [add(gzip.compress(layer, mtime=0), f"{_OCI}.layer.v1.tar+gzip")],
    }
    entry = add(json.dumps(manifest).encode(), f"{_OCI}.manifest.v1+json")
    reference = f"{REPOSITORY}:{entry['digest'].removeprefix('sha256:')[:16]}"
    # Podman takes the name of an image that it loads from here.
    entry["annotations"] = {"org.opencontainers.image.ref.name": reference}
    index = {"schemaVersion": 2, "manifests": [entry]}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
    return PauseImage(reference, _build_tar_archive(files | blobs, mode=0o644))


def _seccomp_profile() -> str:
    """The filter; it ends programs for another kind of processor, such as 32-bit ones."""
    denied = {"names": _DENIED.split(), "action": "SCMP_ACT_ERRNO"}
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [denied]})


def _build_tar_archive(files: dict[str, bytes], *, mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()
