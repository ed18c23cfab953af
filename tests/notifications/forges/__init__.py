"""Tests of forges: each request is checked against the published description of the API, or sent to a real Gitea."""
