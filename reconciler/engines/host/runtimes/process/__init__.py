"""The process runtime: containers are programs of this host, each below a wrapper that records its exit code."""
