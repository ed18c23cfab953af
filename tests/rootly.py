"""Commands that root gives where the state directory belongs to somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.desk import Said

OWNER = 12_345

IMPORT_ALL = """
import importlib, json, os, pkgutil, sys
from pathlib import Path
import reconciler
for module in pkgutil.walk_packages(reconciler.__path__, "reconciler."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import encodings
codecs = [f"encodings.{each.name}" for each in pkgutil.iter_modules(encodings.__path__) if "mbcs" not in each.name]
for name in (*codecs, "structlog", "watchfiles", "difflib", "getpass", "unicodedata", "pickle",
             "concurrent.futures.thread",
             "encodings.idna", "stringprep", "jsonschema", "jsonschema_rs", "referencing.jsonschema", "cryptography",
             "pyrage", "sqlite3", "asyncio.unix_events", "rich", "yaml", "pdb", "graphlib", "tempfile", "shlex"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
from reconciler.cli import main
from reconciler.settings import load_settings
"""
"""Loads all that a command imports: that may lie in a home of root, where the owner gets nothing."""

ONE = f"""{IMPORT_ALL}
load_settings(Path(os.environ["RECONCILER_SETTINGS"]))
sys.argv = ["reconciler", *sys.argv[1:]]
main()
"""

MANY = f"""{IMPORT_ALL}
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        for number, name in enumerate(("/dev/null", asked["out"], asked["err"])):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.environ["RECONCILER_SETTINGS"] = asked["settings"]
        os.chdir("/")
        load_settings(Path(asked["settings"]))
        sys.argv = ["reconciler", *asked["words"]]
        try:
            main()
        except SystemExit as ended:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code or 0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def command(*words: str) -> list[str]:
    """``reconciler WORDS`` for root, as a command line."""
    return [sys.executable, "-c", ONE, *words]


class Root:
    """Gives commands, each in a process of its own that begins with everything imported."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process = process
        self._scratch = scratch

    def run(self, settings: Path, *words: str) -> Said:
        """``reconciler WORDS``, to its end."""
        out, err = self._scratch / "out", self._scratch / "err"
        asked = {"words": words, "settings": str(settings), "out": str(out), "err": str(err)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        code = self._process.stdout.readline()
        return Said(int(code), out.read_text(), err.read_text())


@contextmanager
def root(scratch: Path) -> Iterator[Root]:
    """Root, for several commands."""
    with subprocess.Popen(
        [sys.executable, "-c", MANY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Root(process, scratch)
        assert process.stdin is not None
        process.stdin.close()


def give_away(*places: Path) -> None:
    """Let all at ``places`` belong to the owner."""
    for place in places:
        for path in (place, *place.rglob("*")):
            os.chown(path, OWNER, OWNER, follow_symlinks=False)
