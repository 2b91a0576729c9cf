"""Runs alone on a node: one collector per resource, and the agent that runs them.

Travels without the rest of gpumon: `collect`, `wire`, `model` and `errors` need only the
standard library (Python 3.9 and later).
"""
