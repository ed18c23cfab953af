"""A Podman service of the tests' own: its storage, networks and socket; and an image made without a network.

There is one on this machine at a time: two would choose the same addresses for their networks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.support.programs import tool

IMAGE = "localhost/reconciler-test:1"
"""Debian's static busybox, with the users root and app (1000)."""
APP_IMAGE = "localhost/reconciler-test-app:1"
"""The same, run by app."""
_APPLETS = "sh sleep echo cat ls id env true kill nc httpd wget grep mkdir printf stat test ulimit touch dd stty tail"
_SERVE = """#!/bin/sh
trap "exit 0" TERM
if [ "$PORT" ]; then httpd -f -p "$PORT" -h /srv & else sleep 99999 & fi
wait
"""
_CHECK = """#!/bin/sh
exec wget -q -O /dev/null "http://127.0.0.1:$PORT/"
"""
_SERVING = "bundle celery gunicorn node python redis-server valkey-server"
_CHECKING = "curl healthcheck.sh pg_isready redis-cli"
_PAGES = "index.html health healthz up"
_UNUSED = {"test", "idlelib", "ensurepip", "tkinter", "lib2to3", "pydoc_data", "config-3.11-x86_64-linux-gnu"}
"""Directories of Python's library that no test imports."""
_SUBNETS = "10.213.0.0/16"
_OWN_CHAIN = re.compile(r"NETAVARK-(DN-)?[0-9A-F]{13}")
"""The chains that netavark has for one network."""
_PATIENCE = 60.0
_TOP = Path("/tmp")
"""The same for every run of the tests, whatever its TMPDIR."""
_CGROUPS = Path("/sys/fs/cgroup")
_NAMESPACES = Path("/run/netns")
_OCI_STATE = Path("/run/runc")
_CONTAINERS_CONF = f"""
[engine]
exit_command_delay = 1
[containers]
base_hosts_file = "none"
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[network]
default_subnet_pools = [{{"base" = "{_SUBNETS}", "size" = 24}}]
"""


class PodmanService:
    """A Podman service with everything of its own below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "podman.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._conf = folder / "containers.conf"

    def start(self) -> None:
        """Start the service, and return once it answers."""
        for name in ("root", "run", "tmp", "net", "volumes"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not self._conf.exists():
            self._conf.write_text(_CONTAINERS_CONF)
        own = {"root": "root", "runroot": "run", "tmpdir": "tmp", "network-config-dir": "net", "volumepath": "volumes"}
        flags = [part for flag, name in own.items() for part in (f"--{flag}", str(self.folder / name))]
        flags += ["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]
        search = f"{self._programs()}:{os.environ['PATH']}"
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["podman", *flags, "system", "service", "--time", "0", f"unix://{self.socket}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "CONTAINERS_CONF": str(self._conf), "PATH": search},
                cwd=self.folder,  # conmon writes a file there when the memory is exhausted
                start_new_session=True,
            )
        (self.folder / "pid").write_text(str(self._process.pid))
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.02)

    def _programs(self) -> Path:
        """A directory with a program that knows no package: the search takes 0.25 s of CPU when an engine starts."""
        program = self.folder / "bin/dpkg-query"
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        return program.parent

    def kill(self) -> None:
        """End the service by SIGKILL at any moment; containers run on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            return
        with contextlib.suppress(OSError, ValueError):
            # That of a test process that was killed.
            pid = int((self.folder / "pid").read_text())
            if os.fsencode(self.socket) in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    def restart(self) -> None:
        """Kill the service, and start it again."""
        self.kill()
        self.start()

    def reboot(self) -> None:
        """As if the machine had started again: no process, mount, network interface or state of a run is left."""
        spaces = [self.request("GET", f"containers/{container['Id']}/json") for container in self.containers()]
        self.kill()
        for pid in self.monitors():
            os.kill(pid, signal.SIGKILL)
        for oci_state in self.oci_states():
            command = ["runc", "--root", str(_OCI_STATE), "delete", "--force", oci_state]
            subprocess.run(command, capture_output=True, check=True)
        paths = {space["NetworkSettings"]["SandboxKey"] for space in spaces} - {""}
        self._unmount()
        for path in paths:
            subprocess.run(["umount", path], check=False, capture_output=True)
            Path(path).unlink(missing_ok=True)
        for name in self.bridges():
            subprocess.run(["ip", "link", "delete", name], check=True)
        for name in ("run", "tmp"):
            shutil.rmtree(self.folder / name)
        self.start()

    def request(self, method: str, path: str, content: bytes = b"", kind: str = "application/json") -> Any:
        """The answer to one request, without the client of the project."""
        command = ["curl", "-sS", "--unix-socket", str(self.socket), "-X", method, "-H", f"Content-Type: {kind}"]
        command += ["--data-binary", "@-", f"http://d/v4.0.0/libpod/{path}"]
        done = subprocess.run(command, input=content, capture_output=True, check=True)
        return json.loads(done.stdout) if done.stdout.strip() else None

    def containers(self) -> list[dict[str, Any]]:
        """Everything that Podman knows, storage without a container included."""
        return self.request("GET", "containers/json?all=true&external=true")

    def networks(self) -> list[str]:
        """The networks, without the one that Podman always has."""
        return [each["name"] for each in self.request("GET", "networks/json") if each["name"] != "podman"]

    def bridges(self) -> set[str]:
        """The interfaces of this host with an address of the tests' networks."""
        done = subprocess.run(["ip", "-o", "-4", "address"], capture_output=True, text=True, check=True)
        return {line.split()[1] for line in done.stdout.splitlines() if f" {_SUBNETS.rpartition('.0.0')[0]}." in line}

    def clear(self) -> None:
        """Remove every container, process, control group and network; images stay."""
        ids = [container["Id"] for container in self.containers()]
        # The first delete of a container without its monitor fails.
        for value in ids * 2:
            self.request("DELETE", f"containers/{value}?force=true&timeout=0&ignore=true&depend=true")
        for name in self.networks():
            self.request("DELETE", f"networks/{name}")
            table = name.replace("-", "_")
            for family in ("ip", "inet"):
                value = f"{family} {table}"
                subprocess.run(["nft", f"add table {value}; delete table {value}"], check=False)
        for value in self.oci_states():
            command = ["runc", "--root", str(_OCI_STATE), "delete", "--force", value]
            subprocess.run(command, capture_output=True, check=False)
            ids.append(value)
        for value in ids:
            for group in _CGROUPS.glob(f"*/reconciler_*/libpod-{value}"):
                _remove_group(group)
        for parent in _CGROUPS.glob("*/reconciler_*"):
            # One that another program uses is not empty.
            for folder in (parent / "conmon", parent):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def oci_states(self) -> list[str]:
        """The containers of this service that the OCI runtime has state of."""
        mark, containers = os.fsencode(f"{self.folder}/"), []
        for path in _OCI_STATE.glob("*/state.json"):
            with contextlib.suppress(OSError):
                containers += [path.parent.name] if mark in path.read_bytes() else []
        return sorted(containers)

    def lost_namespaces(self) -> list[Path]:
        """The network namespaces made since this service exists that no process is in: a killed one forgets some.

        Every further sweep of a runtime would start a process for each, to read its addresses.
        """
        used, born = set(), self._conf.stat().st_mtime
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            with contextlib.suppress(OSError):
                used.add(path.stat().st_ino)
        made = [path for path in _NAMESPACES.glob("netns-*") if path.stat().st_mtime >= born]
        return [path for path in made if path.stat().st_ino not in used]

    def load(self, archive: bytes) -> None:
        """Bring an image."""
        self.request("POST", "images/load", archive, "application/x-tar")

    def monitors(self) -> list[int]:
        """The processes that watch containers of this service, dead ones left out."""
        pids = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (path / "cmdline").read_bytes()
                if command.startswith(b"/usr/bin/conmon\0") and os.fsencode(self.folder) in command:
                    pids.append(int(path.name))
        return pids

    def close(self) -> None:
        """Remove every container, process, mount, network and file of the service."""
        self.restart()
        self.clear()
        self.kill()
        for pid in self.monitors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._unmount()
        for namespace in self.lost_namespaces():
            subprocess.run(["umount", "--lazy", str(namespace)], capture_output=True, check=False)
            namespace.unlink(missing_ok=True)
        self._remove_folder()
        saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
        if lost := left_rules(saved):
            subprocess.run(["iptables-restore", "-w", "--noflush"], input=lost, text=True, check=False)

    def _remove_folder(self) -> None:
        """Remove the folder; what a monitor began before its end, such as a cleanup, may still write there."""
        deadline = time.monotonic() + _PATIENCE
        while self.folder.exists():
            try:
                shutil.rmtree(self.folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _unmount(self) -> None:
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted((each for each in mounts if each.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self.socket))
            link.sendall(b"GET /_ping HTTP/1.0\r\nHost: d\r\n\r\n")
            return b" 200 " in link.recv(64)
        return False


def _share_namespaces() -> None:
    """Make the directory of network namespaces a shared mount, as the first container on a machine does.

    Podman does it in several steps: of two first containers at once, the one hides the namespace of the other.
    """
    _NAMESPACES.mkdir(exist_ok=True)
    shared = any(line.split()[4] == str(_NAMESPACES) for line in Path("/proc/self/mountinfo").read_text().splitlines())
    if not shared:
        for options in (["--bind", _NAMESPACES, _NAMESPACES], ["--make-shared", _NAMESPACES]):
            subprocess.run(["mount", *options], check=True)


@contextlib.contextmanager
def podman_service() -> Iterator[PodmanService]:
    """The service, with its images, alone on this machine; skips without Podman or root, and fails there in CI."""
    for name, package in (("podman", "podman"), ("runc", "runc"), ("nft", "nftables"), ("busybox", "busybox-static")):
        tool(name, package)
    if os.geteuid() != 0:
        message = "only root runs a Podman service of its own for tests"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with (_TOP / "reconciler-podman.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        service = PodmanService(_TOP / "reconciler-podman")
        if service.folder.exists():
            service.close()  # a test process was killed
        try:
            _share_namespaces()
            service.start()
            service.load(busybox_image(IMAGE))
            service.load(busybox_image(APP_IMAGE, user="app"))
            yield service
        finally:
            service.close()


def groups_of(owner: str) -> list[Path]:
    """The control groups in which the Podman runtime of ``owner`` has its containers, in all hierarchies."""
    return [*_CGROUPS.glob(f"*/reconciler_{owner}"), *_CGROUPS.glob(f"reconciler_{owner}")]


def port_table(owner: str) -> str:
    """The table of nftables that leads ports of this host to the containers of ``owner``; "" without one."""
    return _table("ip", owner)


def firewall_table(owner: str) -> str:
    """The table of nftables with the firewall of the containers of ``owner``; "" without one."""
    return _table("inet", owner)


def left_rules(saved: str) -> str:
    """The input of iptables-restore that removes the rules for the tests' networks from those of ``iptables-save``.

    A service that is killed leaves them, and every further call of iptables reads them.
    """
    texts: list[str] = []
    for table in saved.split("*")[1:]:
        name, *lines = table.splitlines()
        rules = [line for line in lines if line.startswith("-A ")]
        ours = [rule for rule in rules if f" {_SUBNETS.rpartition('.0.0')[0]}." in rule]
        chains = sorted({rule.split()[1] for rule in ours if _OWN_CHAIN.fullmatch(rule.split()[1])})
        jumps = [rule for rule in rules if rule.split()[-1] in chains]
        single = [rule for rule in dict.fromkeys([*jumps, *ours]) if rule.split()[1] not in chains]
        removed = [
            *(f"-D {rule[3:]}" for rule in single),
            *(f"-F {at}" for at in chains),
            *(f"-X {at}" for at in chains),
        ]
        texts += [f"*{name}", *removed, "COMMIT"] if removed else []
    return "\n".join([*texts, ""]) if texts else ""


def _table(family: str, owner: str) -> str:
    command = ["nft", "list", "table", family, f"reconciler_{owner}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _remove_group(group: Path) -> None:
    deadline = time.monotonic() + 5.0
    while group.exists() and time.monotonic() < deadline:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()


def busybox_image(name: str, user: str = "", without: str = "") -> bytes:
    """An OCI archive of Debian's static busybox under ``name``, run by ``user``; the same bytes each time.

    It lacks the program ``without``.
    """
    files, links = _busybox()
    links.pop(f"bin/{without}", "")
    return _image(name, _archive(files, links), user)


def python_image(name: str, more: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """An OCI archive with the Python of this Debian host and its busybox; any program of the library runs in it.

    ``more`` are further files by their path.
    """
    program = Path(tool("/usr/bin/python3.11", "python3.11"))
    library = Path("/usr/lib/python3.11")
    modules = [path for path in library.rglob("*") if path.is_file() and not _UNUSED & {*path.parts}]
    binaries = [program, *(library / "lib-dynload").glob("*.so")]
    linked = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=True).stdout
    shared = sorted({Path(word) for word in linked.split() if word.startswith("/lib")})
    files, links = _busybox()
    files |= {str(path).lstrip("/"): path.read_bytes() for path in (program, *modules, *shared)} | dict(more)
    return _image(name, _archive(files, {**links, "usr/bin/python3": "python3.11"}), "", "/usr/bin:/bin")


def stand_in_image(name: str) -> bytes:
    """An OCI archive that stands in for an application: its programs serve at PORT, or wait if there is none."""
    files, links = _busybox()
    files |= {"bin/serve": _SERVE.encode(), "bin/check": _CHECK.encode()}
    files |= {f"srv/{page}": b"fine\n" for page in _PAGES.split()}
    links |= {f"bin/{program}": "serve" for program in _SERVING.split()}
    links |= {f"bin/{program}": "check" for program in _CHECKING.split()} | {"bin/date": "busybox"}
    return _image(name, _archive(files, links), "", entrypoint="/bin/serve")


def manifest_of(archive: bytes) -> bytes:
    """The manifest of the image in an OCI archive."""
    blobs = blobs_of(archive)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile("index.json")
        assert file is not None
        [entry] = json.load(file)["manifests"]
    return blobs[entry["digest"]]


def blobs_of(archive: bytes) -> dict[str, bytes]:
    """The manifest, the configuration and the layers of the image in an OCI archive, by their digests."""
    blobs, folder = dict[str, bytes](), "blobs/sha256/"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            if entry.name.startswith(folder) and (file := tar.extractfile(entry)) is not None:
                blobs[f"sha256:{entry.name.removeprefix(folder)}"] = file.read()
    return blobs


def _busybox() -> tuple[dict[str, bytes], dict[str, str]]:
    """The files and symlinks of an image of busybox."""
    files = {
        "bin/busybox": Path(tool("busybox", "busybox-static")).read_bytes(),
        "etc/passwd": b"root:x:0:0:root:/:/bin/sh\napp:x:1000:1000::/home:/bin/sh\nblocked:x:1337:1337::/:/bin/sh\n",
        "etc/group": b"root:x:0:\napp:x:1000:\n",
    }
    return files, {f"bin/{applet}": "busybox" for applet in _APPLETS.split()}


def _image(name: str, layer: bytes, user: str, path: str = "/bin", entrypoint: str = "") -> bytes:
    blobs: dict[str, bytes] = {}

    def add(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    begin = [entrypoint] if entrypoint else ["/bin/echo", "entrypoint"]
    own = {"Entrypoint": begin, "Cmd": ["default"], "Env": [f"PATH={path}"], "User": user}
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": own,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "tests"}],  # without it, nothing can be built from the image
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add(json.dumps(config).encode(), "config.v1+json"),
        "layers": [add(gzip.compress(layer, 1, mtime=0), "layer.v1.tar+gzip")],
    }
    entry = add(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": name}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    return _archive({"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": index, **blobs}, {})


def _archive(files: dict[str, bytes], links: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644 if name.startswith("etc/") else 0o755
            tar.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return out.getvalue()
