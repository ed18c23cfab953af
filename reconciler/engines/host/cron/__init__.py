"""Executions of cron workloads: their log on disk, and the decisions on it."""
