"""All pages: a new one is a module with a route and a query, a template, and a line here."""

from __future__ import annotations

from reconciler.api.page import (
    assets,
    diffs,
    events,
    evidence,
    home,
    log_stream,
    login,
    logs,
    notifications,
    plans,
    resources,
    rollback,
    runs,
    secrets,
    terminal,
    tree,
)

PAGES = (
    *home.PAGES,
    *tree.PAGES,
    *resources.PAGES,
    *runs.PAGES,
    *notifications.PAGES,
    *plans.PAGES,
    *rollback.PAGES,
    *diffs.PAGES,
    *logs.PAGES,
    *log_stream.PAGES,
    *evidence.PAGES,
    *secrets.PAGES,
    *terminal.PAGES,
    *events.PAGES,
    *login.PAGES,
    *assets.PAGES,
)
