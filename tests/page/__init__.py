"""The page as people see it: a real daemon, its API, and Chromium."""
