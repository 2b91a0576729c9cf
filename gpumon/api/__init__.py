"""gpumon for programs and notebooks: `gpumon/__init__.py` loads what is used (docs/python.md)."""
