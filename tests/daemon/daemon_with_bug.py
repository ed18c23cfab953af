"""A daemon with a rule that raises at workloads with a mark: ``python -m tests.daemon.daemon_with_bug``."""

from __future__ import annotations

import asyncio

from reconciler import logs
from reconciler.daemon.service import run_daemon
from reconciler.settings import load_settings, settings_path
from tests.support.buggy import raising_rule


def main() -> None:
    """Run the daemon."""
    settings = load_settings(settings_path(None))
    logs.configure_logging(settings.log.format, settings.log.level)
    with raising_rule():
        asyncio.run(run_daemon(settings))


if __name__ == "__main__":
    main()
