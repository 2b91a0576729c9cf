"""Kinds of programs. Each module has functions that draw one job of a kind from a generator."""
