"""Screens as functions: what the store says, in rows of text runs."""
