"""Drawings that several screens share."""
