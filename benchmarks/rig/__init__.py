"""Shared by the benchmark scripts: gateways, the load generator, accounting from /proc."""
