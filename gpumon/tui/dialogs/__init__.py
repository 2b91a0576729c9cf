"""Dialogs over the screen."""
