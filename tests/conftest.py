"""Loads what holds for every test: the number of examples of a property."""

from __future__ import annotations

import tests.support.examples  # noqa: F401
