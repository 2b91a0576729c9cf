"""Samples in forms that other programs read."""
