"""Metrics exposition, dashboard, access log, tracing."""
