"""Forges: commit statuses, comments on pull requests and deployments, where people look after a push."""
