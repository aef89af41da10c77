"""Capacity planner."""
