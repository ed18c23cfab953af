"""What a conversion of a compose project says: the same remark about many services is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SERVICES = 20


def remarks(path: Path, *words: str) -> list[str]:
    """The lines on stderr of a conversion."""
    command = [sys.executable, "-m", "reconciler.platform_cli", "stack", "manifest", "--gvc", "shop", *words]
    environ = {"PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": "/nowhere", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, cwd=path, env=environ, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_the_same_remark_about_many_services_is_one_line(tmp_path: Path) -> None:
    service = "  s{}:\n    image: nginx:1\n    privileged: true\n    environment: [A, B]\n"
    (tmp_path / "compose.yaml").write_text("services:\n" + "".join(service.format(each) for each in range(SERVICES)))
    folded = remarks(tmp_path)
    assert len(folded) == 5
    assert folded[3].startswith(
        "compose.yaml:4:5: warning: `privileged` has no counterpart and is left out (also in lines 8, 12, 16, 20, 24 "
        "and 14 more); "
    )
    assert len(remarks(tmp_path, "--verbose")) == 2 + 4 * SERVICES


def test_a_remark_that_stands_alone_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {web: {image: nginx:1, privileged: true}}\n")
    assert remarks(tmp_path) == remarks(tmp_path, "-v")


def test_a_result_that_is_not_valid_is_an_error_at_its_service(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services:\n  fine: {image: fine}\n  web:\n    image: Web Server:1\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        remarks(tmp_path)
    assert raised.value.stdout == ""
    errors = [line for line in raised.value.stderr.splitlines() if "error" in line]
    assert errors == [
        "compose.yaml:3:3: error: the workload web would be refused for `image`: the schema of the kind does not take "
        "it; change it here, or leave it out [convert-invalid]",
        "error: the files have errors, so nothing is converted",
    ]
