"""gpumon's probe: tells what a program's own Python knows of its GPU memory, steps and waits.

`sitecustomize.py` beside it imports this as soon as PyTorch, JAX or TensorFlow is imported. It
imports nothing of gpumon, prints nothing, and starts nothing on a device: a thread looks a few
times a second at what they hold and at where the main thread stands, and every two seconds writes a
small file into the folder GPUMON_PROBE_DIR. For Python 3.6 and later, with the standard library
alone (docs/probe.md).
"""

import os
import sys
from time import perf_counter as _clock
from time import time

from gpumon_steps import Steps, is_whole

TYPE_CHECKING = False  # `typing` takes longer to import than this file
if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event
    from types import CodeType
    from typing import Any

_FIRST_LOOK_S, _SLOWEST_LOOK_S = 0.25, 5.0  # while there is nothing to tell
_STACK_S = 0.25  # between two looks at the main thread
_WRITE_S = 2.0
_WINDOW_S = 10.0  # that rates and shares are of
_MOST_FRAMES, _MOST_FILES = 200, 4096
_TOLD_FRAMES, _FRAME_TEXT = 64, 80
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
#: (file, function, what waits there): the innermost of them counts
_WAITS = (
    ("torch/utils/data/dataloader.py", "__next__", "data"),
    ("multiprocessing/queues.py", "get", "work"),  # of a loader's worker
    ("torch/distributed/distributed_c10d.py", "", "ranks"),
)
_MOST_TEXT = 120
_OLD_S = 60.0  # who watches has read the last words of an ended process by then
_MOST_FAULTS = 3
_NOT_OWN = (
    "site-packages" + os.sep,
    "dist-packages" + os.sep,
    os.path.dirname(os.__file__) + os.sep,
)
_GENERATED = (os.sep + "torchinductor_", os.sep + "__autograph_generated_file")


class _Pools:
    """What frameworks hold and need on each device; own maxima, as programs may reset theirs."""

    def __init__(self) -> None:
        self._faults: "dict[str, int]" = {}
        self._peaks: "dict[tuple[str, int, str], int]" = {}

    def read(self) -> "list[dict[str, Any]]":
        """A list of dicts: `by` which framework, `device` its number, sizes in bytes."""
        found = []
        for name, read in (("torch", _torch), ("jax", _jax), ("tensorflow", _tensorflow)):
            module = sys.modules.get(name)
            if not is_whole(module) or self._faults.get(name, 0) >= _MOST_FAULTS:
                continue
            try:
                for pool in read(module):
                    self._keep_peaks(name, pool)
                    found.append(pool)
            except Exception:
                self._faults[name] = self._faults.get(name, 0) + 1
        return found

    def _keep_peaks(self, name: str, pool: "dict[str, Any]") -> None:
        pool["by"] = name
        for field in ("peak", "reserved_peak"):
            if pool.get(field) is not None:
                key = (name, pool["device"], field)
                pool[field] = self._peaks[key] = max(pool[field], self._peaks.get(key, 0))


def _torch(torch: "Any") -> "Iterator[dict[str, Any]]":
    if not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        told = torch.cuda.memory_stats_as_nested_dict(device)
        used, reserved = told["allocated_bytes"]["all"], told["reserved_bytes"]["all"]
        if not reserved["peak"]:
            continue  # it has not used this one
        yield {
            "device": device,
            "uuid": str(getattr(torch.cuda.get_device_properties(device), "uuid", "")),
            "used": used["current"],
            "peak": used["peak"],
            "reserved": reserved["current"],
            "reserved_peak": reserved["peak"],
            "retries": told.get("num_alloc_retries"),
            "ooms": told.get("num_ooms"),
        }


def _jax(jax: "Any") -> "Iterator[dict[str, Any]]":
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None or not bridge.backends_are_initialized():
        return
    for device in jax.local_devices():
        told = device.memory_stats() if device.platform != "cpu" else None
        if not told:
            continue
        number = getattr(device, "local_hardware_id", None)
        yield {
            "device": device.id if number is None else number,
            "used": told.get("bytes_in_use"),
            "peak": told.get("peak_bytes_in_use"),
            "reserved": told.get("pool_bytes") or told.get("bytes_reserved") or None,
            "limit": told.get("bytes_limit"),
        }


def _tensorflow(tensorflow: "Any") -> "Iterator[dict[str, Any]]":
    eager = sys.modules.get("tensorflow.python.eager.context")
    context = None if eager is None else getattr(eager, "_context", None)
    if context is None or not getattr(context, "_initialized", False):
        return
    chosen = tensorflow.config.get_visible_devices("GPU")
    if len(chosen) != len(tensorflow.config.list_logical_devices("GPU")):
        return  # it divided some: which is where is not told
    for number, device in enumerate(chosen):
        told = tensorflow.config.experimental.get_memory_info("GPU:%d" % number)
        place = int(device.name.rpartition(":")[2])
        yield {"device": place, "used": told["current"], "peak": told["peak"]}


def _worker() -> "int | None":
    """The number of this process among the workers of a data loader, if it is one."""
    data = sys.modules.get("torch.utils.data")
    ask = getattr(data, "get_worker_info", None) if is_whole(data) else None
    info = None if ask is None else ask()
    return None if info is None else int(info.id)


def _rank() -> "int | None":
    """The number of this process among those of its program, as its launcher gave it."""
    told = (os.environ.get(name, "") for name in _RANKS)
    return next((int(rank) for rank in told if rank.isdecimal()), None)


class _Places:
    """Where the main thread stands: (own line -> deepest call), and what it waits for there."""

    def __init__(self) -> None:
        self._own: "dict[str, bool]" = {}  # file -> whether it is the user's own
        self._awaited: "dict[CodeType, str]" = {}
        self._window: "list[tuple[float, str]]" = []  # when, and what it waited for
        self._place = ""
        self._is_worker = False
        self._has_loader = False  # it was seen in PyTorch's; programs have their own, too

    def look(self, now: float, is_worker: bool) -> None:
        self._is_worker = is_worker
        threading: "Any" = sys.modules["threading"]
        frame = sys._current_frames().get(threading.main_thread().ident)
        if frame is None:
            return
        deepest, own, waits = frame.f_code, None, ""
        for _ in range(_MOST_FRAMES):
            code = frame.f_code
            if is_worker and code.co_name == "_bootstrap":
                break  # what follows is of the process that it was forked from
            if own is None and self._is_own(code.co_filename):
                own = (code.co_filename, frame.f_lineno or 0)
            if not waits:
                waits = self._awaits(code)
                if waits == "work" and not is_worker:
                    waits = ""
                if waits and own is None:
                    deepest = code  # how it waits within is of no interest
            if frame.f_back is None:
                break
            frame = frame.f_back
        self._place = self._text(own, deepest)
        self._window.append((now, waits))
        self._has_loader = self._has_loader or waits == "data"

    def _is_own(self, path: str) -> bool:
        known = self._own.get(path)
        if known is None:
            known = path[:1] != "<" and not any(part in path for part in _NOT_OWN + _GENERATED)
            if len(self._own) < _MOST_FILES:
                self._own[path] = known
        return known

    def _awaits(self, code: "CodeType") -> str:
        known = self._awaited.get(code)
        if known is None:
            known = ""
            for file, name, waits in _WAITS:
                if code.co_name.startswith(name) and code.co_filename.endswith(file):
                    known = waits
            if len(self._awaited) < _MOST_FILES:
                self._awaited[code] = known
        return known

    def _text(self, own: "tuple[str, int] | None", code: "CodeType") -> str:
        call = getattr(code, "co_qualname", code.co_name)
        if own is None:
            return call[:_MOST_TEXT]
        line = "%s:%d" % (os.path.basename(own[0]), own[1])
        return ("%s %s" % (line, call))[:_MOST_TEXT] if own[0] != code.co_filename else line

    def stack(self) -> "list[list[Any]]":
        """Of the main thread, the deepest call first: file, line, function, whether it is own.

        Not at the exit, where that is the probe's own.
        """
        threading: "Any" = sys.modules["threading"]
        main = threading.main_thread().ident
        frame = None if main == threading.get_ident() else sys._current_frames().get(main)
        told: "list[list[Any]]" = []
        while frame is not None and len(told) < _TOLD_FRAMES:
            code = frame.f_code
            path, call = code.co_filename, getattr(code, "co_qualname", code.co_name)
            own = self._is_own(path)
            short, line = _short(path)[-_FRAME_TEXT:], frame.f_lineno or 0
            told.append([short, line, call[:_FRAME_TEXT], own])
            frame = frame.f_back
        return told

    def told(self, now: float) -> "dict[str, Any]":
        """Where it stands and what it waits for there; of the last ten seconds how often, in %."""
        self._window = [each for each in self._window if each[0] > now - _WINDOW_S]
        if not self._window:
            return {}
        told: "dict[str, Any]" = {"place": self._place, "waits_for": self._window[-1][1]}
        if self._has_loader and not self._is_worker:
            waited = sum(1 for _, waits in self._window if waits == "data")
            told["data_wait_percent"] = 100.0 * waited / len(self._window)
        return told


def _short(path: str) -> str:
    """A library's file within that; of all others only the name."""
    for folder in _NOT_OWN:
        _, found, rest = path.rpartition(folder)
        if found:
            return rest
    # torch.fx: <eval_with_key>.3 from /home/jane/model.py:12 in forward
    return path[: path.find(">") + 1] if path[:1] == "<" else os.path.basename(path)


class _Probe:
    """One process: its thread, and the file that it writes."""

    def __init__(self, folder: str) -> None:
        self._folder: "str | None" = folder
        self._ended: "Event | None" = None
        self._at_fork = False
        self._at_exit = False
        self._steps = Steps()
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._path = ""
        self._over: "Event | None" = None
        self._pools, self._places = _Pools(), _Places()
        self._steps.forget()
        self._steps.wake_at_next(self._stepped)
        self._has_begun = self._has_device = False
        self._worker: "int | None" = None
        # a thread that a fork ends leaves to the next what is due
        self._look_s, self._written = _FIRST_LOOK_S, 0.0
        self._due = _clock() + self._look_s

    def found(self) -> None:
        """A framework is being imported: have a thread look, which `threading` does not list."""
        if self._folder is None:
            return
        self._steps.hook()
        if self._over is not None:
            return
        import _thread
        import threading

        if not self._at_fork and hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._pause, after_in_parent=self._resume, after_in_child=self._reborn
            )
        self._at_fork = True
        self._over, self._ended = threading.Event(), threading.Event()
        try:
            _start_deaf(_thread.start_new_thread, self._run, (self._over, self._ended))
        except RuntimeError:  # no room for a thread
            self._folder = None
            self._steps.stop()

    def step(self) -> None:
        """The program has made a step of its own."""
        if self._over is None:
            self._stepped()
        if self._folder is not None:
            self._steps.called()

    def _stepped(self) -> None:
        """The first step, or the first behind a fork; the program may end before the next look."""
        self._keep_at_exit()
        self.found()

    def _pause(self) -> None:
        """A process with threads is forked with care; Python warns of it."""
        if self._over is not None and self._ended is not None:
            self._over.set()
            self._ended.wait(1.0)
            self._over = None

    def _resume(self) -> None:
        """Behind a fork, but not before Python has counted the threads for its warning.

        Where a device is in use there are others, and it warns anyway. Else at the next step or
        import of a framework, or when Python collects garbage.
        """
        import gc

        if self._has_device:
            self.found()
            return
        self._steps.wake_at_next(self._stepped)
        if self._collecting not in gc.callbacks:
            gc.callbacks.append(self._collecting)

    def _collecting(self, *_: object) -> None:
        import gc

        gc.callbacks.remove(self._collecting)
        self.found()

    def _reborn(self) -> None:
        """In a fork's child: its own counts and its own file."""
        self._renew()
        self.found()

    def _run(self, over: "Event", ended: "Event") -> None:
        faults = 0
        try:
            while not over.wait(max(0.0, self._due - _clock())):
                try:
                    self._look(_clock())
                except OSError:  # a full disk, or no file descriptor left: there may be one again
                    self._written = _clock()
                except Exception:
                    faults += 1
                    if faults >= _MOST_FAULTS:
                        self._folder = None
                        self._steps.stop()
                        return
        finally:
            ended.set()

    def _look(self, now: float) -> None:
        self._due = now + self._look_s
        self._steps.hook(beside_others=False)
        has_steps = self._steps.look()
        if not self._has_begun:
            self._has_device = bool(self._pools.read())
            self._worker = _worker()
            self._has_begun = self._has_device or self._worker is not None or has_steps
            slower_s = min(1.2 * self._look_s, _SLOWEST_LOOK_S)
            self._look_s = _STACK_S if self._has_begun else slower_s
            return
        self._keep_at_exit()
        self._places.look(now, self._worker is not None)
        if now >= self._written + _WRITE_S:
            self._write(now)
            self._written = now

    def _keep_at_exit(self) -> None:
        """After the framework's own: what ends last was registered first."""
        if not self._at_exit:
            import atexit

            atexit.register(self._end)
            self._at_exit = True

    def _end(self) -> None:
        try:
            self._pause()
            has_begun = self._has_begun or self._steps.look()
            if has_begun and self._folder is not None and self._pid == os.getpid():
                self._write(_clock())
            self._folder = None
            self._steps.stop()
        except Exception:
            pass

    def _write(self, now: float) -> None:
        import json

        if not self._path:
            self._path = os.path.join(self._folder or "", _file_name())
            _sweep(self._folder or "")
        pools = self._pools.read()
        self._has_device = bool(pools)
        told: "dict[str, Any]" = {
            "pools": pools,
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "order": os.environ.get("CUDA_DEVICE_ORDER"),
        }
        told.update(self._steps.told(now))
        told.update(self._places.told(now))
        told.update({"rank": _rank()} if self._worker is None else {"worker": self._worker})
        told["stack"] = self._places.stack()
        text = json.dumps(told).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path + ".new", flags, 0o600)
        try:
            whole = os.write(file, text) == len(text)
        finally:
            os.close(file)
        if whole:
            os.rename(self._path + ".new", self._path)


def _start_deaf(start: "Any", *call: object) -> None:
    """Start a thread that takes no signal: a program may block one to wait for it.

    Its own faults are no such signals.
    """
    import _signal as signal  # type: ignore[import-not-found]

    faults = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
    reserved = (32, 33)  # by glibc
    all_others = [n for n in range(1, signal.NSIG) if n not in faults + reserved]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, all_others)
    try:
        start(*call)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _sweep(folder: str) -> None:
    """Remove what processes of this node left that have ended, as those that were killed do."""
    for name in os.listdir(folder)[:_MOST_FILES]:
        pid, path = name.partition("-")[0], os.path.join(folder, name)
        try:
            is_old = time() - os.lstat(path).st_mtime > _OLD_S
            if is_old and pid.isdigit() and ".json" in name and not os.path.exists("/proc/" + pid):
                os.unlink(path)
        except OSError:  # another one was faster
            pass


def _file_name() -> str:
    """A process is its number and its start, in clock ticks since boot."""
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    return "%d-%d.json" % (os.getpid(), ticks)


def _private(folder: "str | None") -> "str | None":
    """The folder, if it is ours alone."""
    if not folder:
        return None
    there = os.lstat(folder)
    is_ours = there.st_uid == os.getuid() and there.st_mode & 0o170077 == 0o040000
    return folder if is_ours else None


def begin() -> None:
    """Begin to look, if there is a folder to write to; called when a framework is imported."""
    if _PROBE is not None:
        _PROBE.found()


def step() -> None:
    """Count a step that the program calls one."""
    if _PROBE is not None:
        _PROBE.step()


_FOLDER = _private(os.environ.get("GPUMON_PROBE_DIR"))
_PROBE = None if _FOLDER is None else _Probe(_FOLDER)
