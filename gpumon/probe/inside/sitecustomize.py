"""Brings gpumon's probe into a Python that is about to run a program.

`gpumon record --probe -- COMMAND` puts this folder first on PYTHONPATH, so that every Python of the
command runs this file before its program, old ones too. It waits for a framework to be imported,
and then loads the probe, of which nothing is heard if that fails. The `sitecustomize` that this
one hides has its turn at once.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_FILES = ("gpumon_steps", "gpumon_thread", "gpumon_looks", "gpumon_file", "gpumon_probe")
_LONGEST_WAIT_S = 0.5  # of the program for the thread that loads the probe


class _Finder:
    """Finds nothing; hears when a framework is imported.

    The probe's thread loads it, as the program's own never waits for a file. Whatever goes wrong
    ends it for good.
    """

    def __init__(self):
        import _thread

        self._start, self._lock = _thread.start_new_thread, _thread.allocate_lock
        self._loading, self._loaded = self._lock(), self._lock()  # the second is held until then
        self._is_asked = self._is_settled = self._is_over = False
        self._probe, self._main = None, _thread.get_ident()

    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "jax", "tensorflow") or name.startswith("torch.optim."):
            try:
                self._begin()
            except Exception:
                self._is_over = True

    def _begin(self):
        if self._probe is not None:
            self._probe.begin()
        elif not self._is_asked:
            self._is_asked = True
            import atexit

            atexit.register(self._settle)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(before=self._settle)
            self._loaded.acquire()
            self._start(self._load_and_run, ())

    def _load_and_run(self):
        thread = None
        try:
            probe = self.gpumon_probe()
            if not self._is_over:
                thread = probe.thread_for_this()
        except BaseException:  # which Python would print
            self._is_over = True
        self._loaded.release()
        if thread is not None:
            thread.run_here()

    def _settle(self):
        """Before the first fork, and at the exit: that thread has ended, or is left behind."""
        if self._is_settled:
            return
        self._is_settled = True
        try:
            if self._loaded.acquire(True, _LONGEST_WAIT_S):
                self._probe.pause()  # it began behind the back of this fork
            else:
                self._is_over = True
        except Exception:
            self._is_over = True

    def gpumon_probe(self):
        """The probe of this process, None without one; `gpumon.step()` asks for it too."""
        is_due = self._probe is None and not self._is_over
        if is_due and self._loading.acquire(True, _LONGEST_WAIT_S):
            try:
                self._probe = self._probe or _load(self._main)
            finally:
                self._loading.release()
        return self._probe


def _load(main):
    """By their paths: the program's `sys.path` stays as it is, even for a moment."""
    loader = type(__loader__)
    try:
        for name in _FILES:
            module = sys.modules[name] = type(sys)(name)
            module.MAIN = main
            code = loader(name, os.path.join(_HERE, name + ".py")).get_code(name)
            exec(code, module.__dict__)
        return module
    finally:
        for name in _FILES:
            sys.modules.pop(name, None)


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
