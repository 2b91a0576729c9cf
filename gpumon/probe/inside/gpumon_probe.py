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

TYPE_CHECKING = False  # `typing` takes longer to import than this file
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event
    from types import CodeType
    from typing import Any

_FIRST_LOOK_S, _SLOWEST_LOOK_S = 0.25, 5.0  # while there is nothing to tell
_STACK_S = 0.25  # between two looks at the main thread
_WRITE_S = 2.0
_WINDOW_S = 10.0  # that rates and shares are of
_MOST_STEPS = 1 << 16  # times kept between two writings; beyond that they are only counted
_KEPT_TIMES = 200  # of those, at even distances, for percentiles
_MOST_OPTIMIZERS, _CHECKED_STEPS = 8, 8
_BY_NAME = 1  # stands for an optimizer where the program calls its steps
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
_MOST_FAULTS = 3
_NOT_OWN = (
    "site-packages" + os.sep,
    "dist-packages" + os.sep,
    os.path.dirname(os.__file__) + os.sep,
)


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
            if not _is_whole(module) or self._faults.get(name, 0) >= _MOST_FAULTS:
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


def _is_whole(module: object) -> bool:
    """Whether it is imported to its end."""
    return module is not None and not getattr(
        getattr(module, "__spec__", None), "_initializing", False
    )


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
    for number in range(len(tensorflow.config.list_logical_devices("GPU"))):
        told = tensorflow.config.experimental.get_memory_info("GPU:%d" % number)
        yield {"device": number, "used": told["current"], "peak": told["peak"]}


class _Hook:
    """What torch calls after each step: it notes the time, and does no more than that.

    Between two steps the program has all caches for itself, so a hook takes ten times what it takes
    in a loop of its own, and the more the more it touches (benchmarks/probe.py).
    """

    __slots__ = ("aside", "times")

    def __init__(self) -> None:
        self.times: "list[Any]" = []  # of steps; where it is known whose: (id, time)
        self.aside: "Callable[[object], object] | None" = None  # called instead

    def step(self, optimizer: object, args: object, kwargs: object) -> None:
        if self.aside is None:
            self.times.append(_clock())
        else:
            self.aside(optimizer)

    step.__dict__["_torchdynamo_disable"] = True  # torch.compile would warn of the clock in it


class _Steps:
    """Steps of torch's optimizers, or those that the program itself calls by that name.

    A program's step is that of the optimizer that makes the most. Whose step it is, is looked at
    in the first few after each look of the thread, and in all while there are several optimizers.
    """

    def __init__(self) -> None:
        self._is_hooked = False
        self._hook = _Hook()
        self._wake: "Callable[[], None]" = self.forget
        self.forget()

    def forget(self) -> None:
        # id of an optimizer -> [steps, time of the last, times since the last telling]
        self._of: "dict[int, list[Any]]" = {}
        self._window: "list[tuple[float, int, float, list[float]]]" = []
        self._whose, self._several_until = 0, 0.0  # by what was taken; in s
        self._hook.times = []
        self._check()

    def hook(self, beside_others: bool = True) -> None:
        """Have torch call, once its optimizers are imported.

        `beside_others`: also where there are other such hooks; not from another thread, as torch
        might just be going over them.
        """
        module: "Any" = sys.modules.get("torch.optim.optimizer")
        if self._is_hooked or not _is_whole(module):
            return
        register = getattr(module, "register_optimizer_step_post_hook", None)  # from torch 2.0 on
        others = getattr(module, "_global_optimizer_post_hooks", None)
        if beside_others or (others is not None and not others):
            self._is_hooked = True
            if register is not None:
                register(self._hook.step)

    def _check(self) -> None:
        """Look at whose the next steps are."""
        self._checks, self._checked = _CHECKED_STEPS, 0
        self._hook.aside = self._aside

    def _aside(self, optimizer: object) -> None:
        whose, now = id(optimizer), _clock()
        self._hook.times.append((whose, now))
        self._checks -= 1
        if self._checked not in (0, whose):
            self._several_until = now + _WINDOW_S
        self._checked = whose
        if self._checks <= 0 and now > self._several_until:
            self._hook.aside = None

    def called(self) -> None:
        """The program calls this a step."""
        self._hook.times.append((_BY_NAME, _clock()))

    def wake_at_next(self, wake: "Callable[[], None]") -> None:
        """Call this at the next step."""
        self._wake, self._hook.aside = wake, self._woken

    def _woken(self, optimizer: object) -> None:
        self._check()
        self._aside(optimizer)
        self._wake()

    def stop(self) -> None:
        """Nobody looks any more."""
        self._hook.aside = id
        self._hook.times = []

    def look(self) -> bool:
        """Take what the hook noted; whether there ever was a step."""
        taken = self._hook.times[:]
        del self._hook.times[: len(taken)]
        for each in taken:
            whose, time = each if type(each) is tuple else (self._whose, each)
            if whose != _BY_NAME:
                self._whose = whose
            known = self._of.get(whose)
            if known is not None:
                known[0] += 1
                if len(known[2]) < _MOST_STEPS:
                    known[2].append(time - known[1])
                known[1] = time
            elif len(self._of) < _MOST_OPTIMIZERS or whose == _BY_NAME:
                self._of[whose] = [1, time, []]
        if taken:
            self._check()
        return bool(self._of)

    def told(self, now: float) -> "dict[str, Any]":
        """Steps so far, and of the last ten seconds how long one took: mean, 95th percentile, s."""
        if not self.look():
            return {}
        most = self._of.get(_BY_NAME) or max(self._of.values(), key=lambda each: each[0])
        times = sorted(most[2])
        for each in self._of.values():
            each[2] = []
        every = 1 + len(times) // _KEPT_TIMES
        self._window.append((now, len(times), sum(times), times[every // 2 :: every]))
        self._window = [part for part in self._window if part[0] > now - _WINDOW_S]
        told = {"steps": most[0]}
        count = sum(part[1] for part in self._window)
        if count:
            told["step_s"] = sum(part[2] for part in self._window) / count
            told["step_p95_s"] = self._p95(count)
        return told

    def _p95(self, count: int) -> float:
        """Of the kept times, each of which stands for as many as its part had for each kept."""
        left = 0.05 * count
        kept = [(time, n / len(kept)) for _, n, _, kept in self._window for time in kept]
        kept.sort(reverse=True)
        for time, weight in kept:
            left -= weight
            if left < 0:
                return time
        return kept[-1][0]


def _worker() -> "int | None":
    """The number of this process among the workers of a data loader, if it is one."""
    data = sys.modules.get("torch.utils.data")
    ask = getattr(data, "get_worker_info", None) if _is_whole(data) else None
    info = None if ask is None else ask()
    return None if info is None else int(info.id)


def _rank() -> "int | None":
    """The number of this process among those of its program, as its launcher gave it."""
    told = (os.environ.get(name, "") for name in _RANKS)
    return next((int(rank) for rank in told if rank.isdigit()), None)


class _Places:
    """Where the main thread stands: (own line -> deepest call), and what it waits for there."""

    def __init__(self) -> None:
        self._own: "dict[str, bool]" = {}  # file -> whether it is the user's own
        self._awaited: "dict[CodeType, str]" = {}
        self._window: "list[tuple[float, str]]" = []  # when, and what it waited for
        self._place = ""
        self._is_worker = False

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
                own = (code.co_filename, frame.f_lineno)
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

    def _is_own(self, path: str) -> bool:
        known = self._own.get(path)
        if known is None:
            known = path[:1] != "<" and not any(part in path for part in _NOT_OWN)
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
        if "torch.utils.data.dataloader" in sys.modules and not self._is_worker:
            waited = sum(1 for _, waits in self._window if waits == "data")
            told["data_wait_percent"] = 100.0 * waited / len(self._window)
        return told


def _short(path: str) -> str:
    """A library's file within that; of all others only the name."""
    for folder in _NOT_OWN:
        _, found, rest = path.rpartition(folder)
        if found:
            return rest
    return path if path[:1] == "<" else os.path.basename(path)


class _Probe:
    """One process: its thread, and the file that it writes."""

    def __init__(self, folder: str) -> None:
        self._folder: "str | None" = folder
        self._ended: "Event | None" = None
        self._at_fork = False
        self._at_exit = False
        self._steps = _Steps()
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._path = ""
        self._over: "Event | None" = None
        self._pools, self._places = _Pools(), _Places()
        self._steps.forget()
        self._has_begun = self._has_device = False
        self._worker: "int | None" = None

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
            _thread.start_new_thread(self._run, (self._over, self._ended))
        except RuntimeError:  # no room for a thread
            self._folder = None
            self._steps.stop()

    def counted(self) -> None:
        """The program has made a step of its own."""
        if self._folder is not None:
            self._steps.called()

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
        self._steps.wake_at_next(self.found)
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
        look_s, written = _FIRST_LOOK_S, 0.0
        try:
            while not over.wait(look_s):
                now = _clock()
                self._steps.hook(beside_others=False)
                has_steps = self._steps.look()
                if not self._has_begun:
                    self._has_device = bool(self._pools.read())
                    self._worker = _worker()
                    self._has_begun = self._has_device or self._worker is not None or has_steps
                    look_s = _STACK_S if self._has_begun else min(1.2 * look_s, _SLOWEST_LOOK_S)
                    continue
                self._keep_at_exit()
                self._places.look(now, self._worker is not None)
                if now >= written + _WRITE_S:
                    self._write(now)
                    written = now
        except Exception:
            self._folder = None
            self._steps.stop()
        finally:
            ended.set()

    def _keep_at_exit(self) -> None:
        """After the framework's own: what ends last was registered first."""
        if not self._at_exit:
            import atexit

            atexit.register(self._end)
            self._at_exit = True

    def _end(self) -> None:
        try:
            self._pause()
            if self._has_begun and self._folder is not None and self._pid == os.getpid():
                self._write(_clock())
            self._folder = None
            self._steps.stop()
        except Exception:
            pass

    def _write(self, now: float) -> None:
        import json

        if not self._path:
            self._path = os.path.join(self._folder or "", _file_name())
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
        _PROBE.found()
        _PROBE.counted()


_FOLDER = _private(os.environ.get("GPUMON_PROBE_DIR"))
_PROBE = None if _FOLDER is None else _Probe(_FOLDER)
