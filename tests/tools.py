"""Programs that tests drive and pip cannot install."""

from __future__ import annotations

import os
import shutil

import pytest


def only_root(reason: str) -> pytest.MarkDecorator:
    """Skips a test for anybody but root; in CI it runs, and fails, whoever runs it."""
    return pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason=reason)


def tool(name: str, package: str) -> str:
    """Path of the program ``name``. Without it the test skips and names the Debian package; in CI it fails."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found:
        return found
    missing = f"{name} is not installed: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
