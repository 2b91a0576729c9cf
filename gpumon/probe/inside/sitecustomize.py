"""Brings gpumon's probe into a Python that is about to run a program.

`gpumon record --probe -- COMMAND` puts this folder first on PYTHONPATH, so that every Python of the
command runs this file before its program, old ones too. It waits for a framework to be imported,
and then imports the probe, of which nothing is heard if that fails. The `sitecustomize` that this
one hides has its turn at once.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Finder:
    """Finds nothing; hears when a framework is imported."""

    probe = None

    def gpumon_probe(self):
        """The probe of this process; `gpumon.step()` asks for it too."""
        if self.probe is None:
            self.probe = _the_probe()
        return self.probe

    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "jax", "tensorflow") or name.startswith("torch.optim."):
            try:
                self.gpumon_probe().begin()
            except Exception:
                pass


def _the_probe():
    sys.path.insert(0, _HERE)
    try:
        import gpumon_probe
    finally:
        sys.path.remove(_HERE)
        for name in ("gpumon_probe", "gpumon_steps"):
            sys.modules.pop(name, None)
    return gpumon_probe


def _import_the_next():
    """The `sitecustomize` that this one stands before; its errors are its own."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize
    except ImportError as error:
        if sys.version_info >= (3,) and error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


if sys.version_info >= (3, 6) and os.environ.get("GPUMON_PROBE_DIR"):
    sys.meta_path.insert(0, _Finder())
_import_the_next()
