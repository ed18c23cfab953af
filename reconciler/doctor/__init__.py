"""Checks of this host and its sources for `reconciler doctor`; changes nothing."""
