"""deploy.yml of Kamal and quadlets of Podman: roles, accessories, units and their entries."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.convert.budget import Budget
from reconciler.convert.files import ConversionOptions, convert_files
from reconciler.convert.kamal.convert import convert_kamal_project as convert_kamal
from reconciler.convert.kamal.convert import read_kamal
from reconciler.documents.writer import render_stream
from tests.cost.growth import Shape
from tests.cost.inputs.compose import TIGHT
from tests.cost.inputs.repeated import lines

HEAD = "service: app\nimage: app:1\n"


def read_files(contents: dict[str, bytes]) -> None:
    """As `convert` reads files, up to the text of their manifests."""
    render_stream(draft.body for draft in convert_files(contents, ConversionOptions("shop")).drafts)


def read_tightly(contents: dict[str, bytes]) -> None:
    """deploy.yml with a budget that it reaches."""
    (project,), _ = read_kamal("deploy.yml", contents["deploy.yml"])
    render_stream(draft.body for draft in convert_kamal(project, "shop", Budget(*TIGHT)).drafts)


def deployed(*texts: str, count: int = 200, tight: bool = False) -> Shape:
    """A deploy.yml in which a line with N is repeated."""

    def make(size: int) -> dict[str, bytes]:
        found = [lines(size, line) if "N" in line else line for text in texts for line in text.splitlines()]
        return {"deploy.yml": (HEAD + "\n".join(found)).encode()}

    return Shape(make, read_tightly if tight else read_files, count, repeats=tight)


def units(text: str, *others: str, count: int = 100) -> Shape:
    """As many containers of one form, in which N is a number, and other units."""

    def make(size: int) -> dict[str, bytes]:
        found = {f"c{number}.container": text.replace("N", str(number)).encode() for number in range(size)}
        return found | {f"o{at}{name}": body.encode() for at, (name, _, body) in enumerate(map(parted, others))}

    return Shape(make, read_files, count)


def shared_drop_in(size: int) -> dict[str, bytes]:
    """A drop-in of as many lines for all of eight containers."""
    more = "[Container]\n" + "\n".join(f"Environment=V{number}=a" for number in range(size))
    found = {f"c{number}.container": b"[Container]\nImage=a\n" for number in range(8)}
    return found | {"container.d/all.conf": more.encode()}


def timed(size: int) -> dict[str, bytes]:
    """As many containers, each with a timer and a drop-in."""
    files: dict[str, bytes] = {}
    for number in range(size):
        files[f"c{number}.container"] = b"[Container]\nImage=a\n"
        files[f"c{number}.timer"] = b"[Timer]\nOnCalendar=daily\n"
        files[f"c{number}.container.d/a.conf"] = b"[Container]\nImage=b\n"
    return files


def parted(text: str) -> tuple[str, str, str]:
    """The suffix and the text of a unit."""
    return text.partition("\n")


def unit(line: Callable[[int], str], count: int = 300) -> Shape:
    """A container with as many lines."""
    return Shape(
        lambda size: {"a.container": ("[Container]\nImage=a\n" + "\n".join(map(line, range(size)))).encode()},
        read_files,
        count,
    )


DEPLOYMENTS: dict[str, Shape] = {
    "roles": deployed("servers:", "  rN: {hosts: [a], cmd: run}"),
    "roles of hosts": deployed("servers:\n  web:", "    - 10.0.0.N"),
    "roles with all variables": deployed("env:", "  VN: a", "servers:", "  rN: [a]", count=300, tight=True),
    "accessories": deployed("accessories:", "  aN: {image: 'a:1', host: b, directories: ['d:/d']}"),
    "secrets": deployed("env:\n  secret:", "    - SN"),
    "domains": deployed("proxy:\n  hosts:", "    - hN.example.com"),
    "volumes of machines": deployed("volumes:", "  - vN:/dN"),
    "unknown fields": deployed("", "wordN: b"),
    "values of Ruby": deployed("env:\n  clear:", "    VN: <%= 1 %>"),
    "statements of Ruby": deployed("", "<% if N %>"),
    "containers": units("[Container]\nImage=a\nPublishPort=80:80\nVolume=vN:/d\nEnvironment=A=b"),
    "containers of one name": units("[Container]\nImage=a\nContainerName=same"),
    "containers that wait for others": units("[Unit]\nAfter=c1.service c2.service\n[Container]\nImage=a"),
    "containers of a pod": units("[Container]\nImage=a\nPod=o0.pod", ".pod\n[Pod]\nPublishPort=80:80"),
    "variables of a unit": unit(lambda number: f"Environment=V{number}=a"),
    "variables on one line": Shape(
        lambda size: {
            "a.container": b"[Container]\nImage=a\nEnvironment=" + b" ".join(b"V%d=a" % n for n in range(size))
        },
        read_files,
        300,
    ),
    "mounts": unit(lambda number: f"Mount=type=volume,source=v{number},target=/d{number}"),
    "secrets of a unit": unit(lambda number: f"Secret=s{number},type=env"),
    "unknown keys": unit(lambda number: f"Word{number}=b"),
    "one key again and again": unit(lambda number: f"Exec=run {number}"),
    "keys that are cleared": unit(lambda number: "Volume=" if number % 2 else "Volume=/a"),
    "arguments of podman": unit(lambda number: f"PodmanArgs=--word{number}"),
    "lines that are continued": unit(lambda number: f"Exec=a{number} \\"),
    "a drop-in of all units": Shape(shared_drop_in, read_files, 100),
    "timers and drop-ins": Shape(timed, read_files, 60),
    "times of a timer": Shape(
        lambda size: {
            "a.container": b"[Container]\nImage=a\n",
            "a.timer": b"[Timer]\n" + b"\n".join(b"OnCalendar=*:%d" % (number % 60) for number in range(size)),
        },
        read_files,
        300,
    ),
    "lines that are no entries": unit(lambda number: f"word{number}"),
}
