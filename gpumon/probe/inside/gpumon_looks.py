"""What gpumon's probe looks at: what frameworks hold, and where the main thread stands.

Runs where `gpumon_probe.py` runs, under the same rules, and on the probe's thread alone.
"""

import os
import sys

from gpumon_steps import is_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType
    from typing import Any

_WINDOW_S = 10.0  # that shares are of
_MOST_FRAMES, _MOST_FILES = 200, 4096
_TOLD_FRAMES, _FRAME_TEXT = 64, 80
_MOST_PLACES = 200  # of the window, which has 40
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
_GENERATED = (os.sep + "torchinductor_", os.sep + "__autograph_generated_file")


class Pools:
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


def worker() -> "int | None":
    """The number of this process among the workers of a data loader, if it is one."""
    data = sys.modules.get("torch.utils.data")
    ask = getattr(data, "get_worker_info", None) if is_whole(data) else None
    info = None if ask is None else ask()
    return None if info is None else int(info.id)


def rank() -> "int | None":
    """The number of this process among those of its program, as its launcher gave it."""
    told = (os.environ.get(name, "") for name in _RANKS)
    return next((int(rank) for rank in told if rank.isdecimal()), None)


class Places:
    """Where the main thread stands: (own line -> deepest call), and what it waits for there."""

    def __init__(self, main: "int | None") -> None:
        """`main`: that thread, where it is known."""
        self._main = main
        self._own: "dict[str, bool]" = {}  # file -> whether it is the user's own
        self._awaited: "dict[CodeType, str]" = {}
        self._window: "list[tuple[float, str]]" = []  # when, and what it waited for
        self._place = ""
        self._is_worker = False
        self._has_loader = False  # it was seen in PyTorch's; programs have their own, too

    def look(self, now: float, is_worker: bool) -> None:
        self._is_worker = is_worker
        frame = self._main_frame()
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
        del self._window[:-_MOST_PLACES]
        self._has_loader = self._has_loader or waits == "data"

    def _main_frame(self) -> "FrameType | None":
        threading: "Any" = sys.modules.get("threading")  # if imported here, it would take this one
        main = self._main if threading is None else threading.main_thread().ident
        return None if main is None else sys._current_frames().get(main)

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
        """Of the main thread, the deepest call first: file, line, function, whether it is own."""
        frame = self._main_frame()
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
