"""The tutorials work as printed: each command is run, in order, and prints what stands below it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from docs.generate.pages import TUTORIALS as PAGES
from tests.docs.shell import typed
from tests.docs.tutorials import TUTORIALS, compare, read_tutorial
from tests.support.examples import thin_out
from tests.support.processes import free_ports
from tests.support.programs import open_way, path_without, tool

PORTS = ("8480", "8443")
"""Of the ingress, as printed."""
DOWN = "trap 'for each in ~/*/; do (cd $each && reconciler down --volumes) >/dev/null 2>&1 || :; done' EXIT"
"""Ends what a tutorial leaves that fails."""


def find_free_ports() -> dict[str, str]:
    """Ports that no other program has, for those on the pages."""
    return dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))


@pytest.mark.parametrize("name", thin_out(TUTORIALS, str))
def test_each_command_of_a_tutorial_prints_what_stands_below_it(name: str, tmp_path: Path) -> None:
    for program, package in (("haproxy", "haproxy"), ("openssl", "openssl"), ("ssh-keygen", "openssh-client")):
        tool(program, package)
    open_way(tmp_path)
    tutorial = read_tutorial(name, replaced=find_free_ports())
    script = f"export PATH={Path(sys.executable).parent}:$PATH\n{DOWN}\n{tutorial.script}"
    more = {"XDG_STATE_HOME": str(tmp_path / ".local/state"), "PATH": path_without("podman", tmp_path / ".programs")}
    found = compare(tutorial, typed(script, tmp_path, tmp_path, **more), tmp_path)
    assert not found, "\n".join(found)


def test_all_tutorials_are_tried() -> None:
    assert {f"tutorials/{name}.md" for name in TUTORIALS} == PAGES
    assert all(len(read_tutorial(name).shown) > 5 for name in TUTORIALS)
    assert len(read_tutorial("first-workload", podman=True).shown) > len(read_tutorial("first-workload").shown)


def test_a_command_that_prints_something_else_is_found() -> None:
    tutorial = read_tutorial("first-workload")
    printed = "".join(f"@@ command\n{chr(10).join(each.printed)}\n" for each in tutorial.shown) + "@@ no output shown\n"
    assert compare(tutorial, printed, Path("/home/ada")) == []
    (found,) = compare(tutorial, printed.replace("Hello from Git", "Hello"), Path("/home/ada"))
    assert re.fullmatch(r"\$ curl .*\n- Hello from Git\n\+ Hello", found)
