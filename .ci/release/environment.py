"""The virtual environment of the Debian package, laid out for the place where it will be."""

from __future__ import annotations

import configparser
import csv
import io
import shutil
import zipfile
from pathlib import Path

from release.dependencies import PIP, remove_unneeded
from release.failures import run_command
from release.python_packages import NAME
from release.source import Source

PREFIX = Path("opt/reconciler")
"""Where the environment is, below the root of a system."""
INTERPRETER = Path("/usr/bin/python3.11")
LIBRARY = PREFIX / "lib/python3.11/site-packages"
CONFIGURATION = f"""\
home = {INTERPRETER.parent}
include-system-site-packages = false
version = 3.11
executable = {INTERPRETER}
command = {INTERPRETER} -m venv --without-pip /{PREFIX}
"""
SCRIPT = """\
#!/{prefix}/bin/python
import sys

from {module} import {function}

sys.exit({function}())
"""


def install_environment(source: Source, dependencies: Path, wheel: Path, root: Path) -> None:
    """Install ``wheel`` with what it needs of ``dependencies`` below ``root``.

    The environment has no pip: dpkg alone changes it. Nothing in it names a place of this machine.
    """
    _make_environment(root)
    library = root / LIBRARY
    shutil.copytree(dependencies, library)
    named = ("--no-deps", "--no-index", "--find-links", wheel.parent, f"{NAME}=={source.version}")
    run_command([*PIP, *named, "--target", library], source.tree, source.environ)
    shutil.rmtree(library / "bin")
    remove_unneeded(library, NAME)
    for record in library.glob("*.dist-info/RECORD"):
        _forget_scripts(record)
    _write_scripts(wheel, root)


def _make_environment(root: Path) -> None:
    (root / LIBRARY).parent.mkdir(parents=True)
    (root / PREFIX / "bin").mkdir()
    (root / PREFIX / "lib64").symlink_to("lib")
    (root / PREFIX / "pyvenv.cfg").write_text(CONFIGURATION)
    for name, target in (("python3.11", INTERPRETER), ("python3", "python3.11"), ("python", "python3.11")):
        (root / PREFIX / "bin" / name).symlink_to(target)


def _forget_scripts(record: Path) -> None:
    """Leave the scripts of a dependency out of its list of files: the package has only its own commands."""
    rows = [row for row in csv.reader(record.read_text().splitlines()) if not row[0].startswith("../../bin/")]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(sorted(rows))
    record.write_text(text.getvalue())


def _write_scripts(wheel: Path, root: Path) -> None:
    entries = configparser.ConfigParser(delimiters="=")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        entries.read_string(archive.read(name).decode())
    for script, target in entries["console_scripts"].items():
        module, _, function = target.partition(":")
        text = SCRIPT.format(prefix=PREFIX, module=module, function=function)
        (root / PREFIX / "bin" / script).write_text(text)
