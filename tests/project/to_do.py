"""What the house rules still find: each number equals what is found, goes down, and its line goes at zero."""

from __future__ import annotations

ROOMS_TO_DO: dict[str, int] = {}
"""Room → names in it that are made of a banned word (test_names.py)."""

MERGES_TO_DO: set[str] = set()
"""Small modules with one importer (test_modules.py)."""

FOLDERS_TO_DO: dict[str, int] = {}
"""Folder → its modules, where they are too many (test_modules.py)."""
