"""Fake vLLM replicas with realistic dynamics."""
