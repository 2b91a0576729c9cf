"""Brings gpumon's probe into a Python that is about to run a program.

`gpumon record --probe -- COMMAND` puts this folder first on PYTHONPATH, so that every Python of the
command runs this file before its program, old ones too. What goes wrong in the probe goes unheard;
then the `sitecustomize` that this one hides has its turn.
"""

import os
import sys


def _probe():
    if sys.version_info >= (3, 6):
        try:
            import gpumon_probe
        except Exception:
            pass
        sys.modules.pop("gpumon_probe", None)


def _import_the_next():
    """The `sitecustomize` that this one stands before; its errors are its own."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize
    except ImportError as error:
        if sys.version_info >= (3,) and error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


_probe()
_import_the_next()
