"""The first fifteen minutes on a machine of one's own: the package, an own image, the tutorials and the first pages.

Debian 12 with systemd, without a network: the image of the tutorials is loaded into Podman before, under a name that is
never pulled, and one of an application of one's own is built from it. The quick start, whose template has an image of
Docker Hub, is run without Podman. Homes are those of Debian, which nobody else can enter.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs.journey import find_missing, read_journey
from tests.docs.shell import blocks
from tests.docs.tutorials import TUTORIALS, compare, read_tutorial
from tests.project.tree import ROOT
from tests.release.conftest import Release
from tests.support.podman import python_image
from tests.systemd.debian_root import FOR_IMAGES
from tests.systemd.machine import NEEDS_MACHINE, Machine, machine

pytestmark = [pytest.mark.packaging, NEEDS_MACHINE]

IMAGE = "localhost/python:3.11-slim"
LOADED = {"docker.io/library/python:3.11-slim": IMAGE, "image: python:3.11-slim": f"image: {IMAGE}"}
"""What stands for the images of the pages."""
PACKAGE, ARCHIVE = "/opt/package.deb", "/opt/python.tar"
HOMES = {"root": Path("/root"), "ada": Path("/home/ada")}
LIMIT = 60.0
"""Seconds from the installed package to an answer of an image of one's own."""
PATIENCE = 400.0
RUNC = '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
"""The settings of Podman where the kernel has control groups of both versions, with which crun fails."""
OWN = {
    "Containerfile": f'FROM {IMAGE}\nCOPY app.py /app.py\nENTRYPOINT ["python3", "-u", "/app.py"]\n',
    "app.py": """\
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"of my own\\n")

HTTPServer(("", int(os.environ["PORT"])), Page).serve_forever()
""",
    "gvc.yaml": "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/local]}}\n",
    "web.yaml": """\
kind: workload
name: web
spec:
  type: standard
  containers:
    - name: main
      image: localhost/own:1
      ports: [{number: 8080, protocol: http}]
      readinessProbe: {httpGet: {path: /, port: 8080}}
  firewallConfig: {external: {inboundAllowCIDR: [0.0.0.0/0]}}
""",
}
"""What somebody has: a program with its image, and manifests."""
DOMAIN = """\
kind: domain
name: shop.example.com
spec:
  ports:
    - {number: 443, protocol: http, routes: [{prefix: /, workloadLink: //gvc/shop/workload/web}]}
"""
"""The manifest that gives it a name; without an ingress, nothing would serve that."""
BUILD, UP = "podman build --quiet --tag localhost/own:1 .", "reconciler up --yes --detach"
ADDRESS = "$(reconciler describe workload/shop/web -o 'jsonpath={.deployments[0].status.address}')"
CERTIFICATE = (
    "mkdir ~/own-certificates; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 7"
    " -subj /CN=shop.example.com -addext subjectAltName=DNS:shop.example.com"
    " -keyout ~/own-certificates/shop.key -out ~/own-certificates/shop.crt 2>/dev/null"
)
PORTS = {"root": "", "ada": ", httpPort: 8480, httpsPort: 8443"}
"""Only root may open those below 1024."""


@pytest.fixture(scope="module")
def host(released: Release) -> Iterator[Machine]:
    """A machine with the package, not installed yet, Podman with the image of the pages, and two users."""
    with TemporaryDirectory(prefix="reconciler-minutes-") as path:

        def copy_files(root: Path) -> None:
            shutil.copy(released.find("*.deb"), root / PACKAGE.removeprefix("/"))
            (root / ARCHIVE.removeprefix("/")).write_bytes(python_image(IMAGE))
            if Path("/sys/fs/cgroup/unified").is_dir():
                (root / "etc/containers").mkdir(exist_ok=True)
                (root / "etc/containers/containers.conf").write_text(RUNC)

        with machine(Path(path), copy_files, FOR_IMAGES) as virtual:
            virtual.run("useradd", "--create-home", "--shell", "/bin/bash", "ada")
            virtual.run("loginctl", "enable-linger", "ada")
            for user in HOMES:
                type_as(virtual, user, f"podman load --quiet --input {ARCHIVE}")
                write_own(virtual, user)
            yield virtual


def write_own(host: Machine, user: str) -> None:
    """Write what somebody has into a directory of the user, and a certificate."""
    folder = host.root / str(HOMES[user] / "own").removeprefix("/")
    folder.mkdir()
    for name, content in OWN.items():
        (folder / name).write_text(content)
    host.run("chown", "-R", f"{user}:", str(HOMES[user] / "own"))
    type_as(host, user, CERTIFICATE)


def type_as(host: Machine, user: str, script: str) -> str:
    """What ``script`` prints in a shell of the user, who has logged in; it must end well."""
    (host.root / "opt/typed.sh").write_text(script)
    words = ("runuser", "--login", user, "--command", "NO_COLOR=1 bash -euo pipefail /opt/typed.sh")
    done = host.attempt(*words, patience=PATIENCE)
    if done.returncode:
        pytest.fail(f"exit code {done.returncode} of\n{script}\n{done.stdout}\n{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def without_podman(host: Machine) -> Iterator[None]:
    """The machine as one on which nobody has installed Podman."""
    host.run("systemctl", "stop", "podman.socket", "podman.service")
    host.run("mv", "/usr/bin/podman", "/usr/bin/podman.away")
    try:
        yield
    finally:
        host.run("mv", "/usr/bin/podman.away", "/usr/bin/podman")
        host.run("systemctl", "start", "podman.socket")


@pytest.fixture(scope="module", autouse=True)
def installed(host: Machine) -> float:
    """When the package is installed, by the monotonic clock."""
    host.run("dpkg", "--install", PACKAGE)
    return time.monotonic()


@pytest.mark.parametrize("user", HOMES)
def test_an_image_of_ones_own_answers_within_a_minute_by_two_commands(
    user: str, host: Machine, record_property: pytest.RecordProperty
) -> None:
    begun = time.monotonic()
    answer = type_as(host, user, f"cd ~/own\n{BUILD} >&2\n{UP} >&2\ncurl --silent http://{ADDRESS}/")
    plain = time.monotonic() - begun
    assert answer == "of my own\n"
    type_as(host, user, "cd ~/own && reconciler down --volumes")

    domain = f"cat > domain.yaml <<'END'\n{DOMAIN}END\ngit add domain.yaml\n"
    commit = "git -c user.name=Ada -c user.email=ada@example.com commit --quiet --message 'Name it'"
    type_as(host, user, f"cd ~/own\n{domain}{commit}")
    begun = time.monotonic()
    setting = f'"locations.local.ingress={{certificates: $HOME/own-certificates{PORTS[user]}}}"'
    port = "443" if user == "root" else "8443"
    name = f"shop.example.com:{port}"
    ask = f"curl --silent --retry 9 --retry-all-errors --cacert ~/own-certificates/shop.crt --resolve {name}:127.0.0.1"
    answer = type_as(host, user, f"cd ~/own\n{BUILD} >&2\n{UP} --set {setting} >&2\n{ask} https://{name}/")
    secure = time.monotonic() - begun
    assert answer == "of my own\n"
    type_as(host, user, "cd ~/own && reconciler down --volumes")

    print(f"{user}: an own image answers {plain:.1f} s after the installation, over HTTPS {secure:.1f} s")
    record_property("seconds", f"{plain:.1f} {secure:.1f}")
    assert max(plain, secure) <= LIMIT


def check_tutorial(host: Machine, user: str, name: str, *, podman: bool) -> None:
    """Type the tutorial; each command prints what the page shows. Nothing of it stays."""
    tutorial = read_tutorial(name, podman=podman, replaced=LOADED if podman else {})
    try:
        differences = compare(tutorial, type_as(host, user, tutorial.script), HOMES[user])
        assert not differences, "\n".join(differences)
    finally:
        down = "for each in ~/*/; do (cd $each && reconciler down --volumes) >/dev/null 2>&1 || :; done"
        made = "hello mail shop cluster certificates machine-key* bert* authority.*"
        type_as(host, user, f"{down}\ncd && rm -rf {made}")


@pytest.mark.parametrize(("user", "name"), [*(("root", name) for name in TUTORIALS), ("ada", "first-workload")])
def test_a_tutorial_prints_there_what_its_page_shows(user: str, name: str, host: Machine) -> None:
    check_tutorial(host, user, name, podman=True)


@pytest.mark.parametrize(("user", "name"), [*(("ada", name) for name in TUTORIALS), ("root", "first-workload")])
def test_a_tutorial_prints_that_without_podman_too(user: str, name: str, host: Machine) -> None:
    with without_podman(host):
        check_tutorial(host, user, name, podman=False)


@pytest.mark.parametrize("user", HOMES)
def test_the_quick_start_and_the_commands_of_the_readme_work(user: str, host: Machine) -> None:
    journey = read_journey(("docs/quickstart.md", "README.md"), "set +u")
    (first,) = [block for block in blocks((ROOT / "README.md").read_text(), "") if "reconciler up" in block]
    with without_podman(host):
        printed = type_as(host, user, f"{journey.script}\necho '@@ block'\ncd\nunset RECONCILER_SETTINGS\n{first}")
    assert find_missing(journey, printed) == []
