"""Cython over csrc/: the hot path of the router."""
