"""The cases, a file per family."""
