"""Tests of cron workloads on the engine of this host."""
