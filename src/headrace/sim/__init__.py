"""Discrete-event simulation that drives the real router."""
