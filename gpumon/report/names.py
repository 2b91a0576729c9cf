"""The names of values in a report's JSON, so that a wrong one is told before there is a report.

`render.json` makes objects by this table; a test holds it to what it makes itself.
"""

from __future__ import annotations

from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.errors import suggestion

SHORT = {
    "gpu.busy.mean": "devices.busy_mean",
    "gpu.busy.p50": "devices.busy_p50",
    "gpu.busy.p95": "devices.busy_p95",
    "gpu.mem.percent": "efficiency.gpu_mem_percent",
    "gpu.percent": "efficiency.gpu_busy_percent",
    "cpu.percent": "efficiency.cpu_percent",
    "mem.percent": "efficiency.mem_percent",
    "time.percent": "efficiency.time_percent",
}
LEVELS = ("critical", "warning", "info")

_SEGMENT = (
    "name$ start end state$ note$ cpu_cores_peak mem_peak_bytes gpu_mem_peak_bytes gpu_busy_percent"
)
#: of each object, by its path (of a list: of its entries), what it holds, in the JSON's order, with
#: `$` behind what is text; nothing: whatever there is
_OBJECTS = {
    "": "version gpumon$ job requested allocated used efficiency seff devices ranks events verdict "
        "findings recommendations waste_gpu_hours unattributed_gpu_hours others_gpu_hours "
        "gpu_hours not_evaluable coverage missing notes$ attempts segments tasks",
    "job": "id$ raw_id$ name$ user$ account$ partition$ state$ exit_code$ cluster$ nodes$ submit "
           "start end running elapsed_s suspended_s time_limit_s time_limit$ restarts sources",
    "job.sources": "",
    "requested": "cpus mem_bytes mem_form$ gpus gpu_type$ nodes gres$ constraint$",
    "allocated": "cpus mem_bytes gpus nodes tres",
    "allocated.tres": "",
    "used": "cpu_core_s cpu_cores_mean cpu_cores_peak mem_peak_bytes mem_max_node_bytes "
            "mem_source$ mem_note$ cpu_note$ gpus_active gpus_worth gpu_busy_percent "
            "gpu_mem_peak_bytes gpu_energy_j",
    "efficiency": "cpu_percent mem_percent time_percent gpu_busy_percent gpu_mem_percent",
    "seff": "cpu_percent mem_percent rule$ differs_because$",
    "devices": "node$ index uuid$ name$ busy_mean busy_p50 busy_p95 idle_tail_s mem_peak_bytes "
               "mem_total_bytes mem_truth$ mem_in_use_peak_bytes mem_need_bytes framework$ "
               "power_mean_w energy_j missing",
    "devices.missing": "",
    "ranks": "node$ pid rank devices$ steps steps_per_s step_mean_s step_p95_s data_wait_percent "
             "workers places worker_places",
    "ranks.places": "place$ percent",
    "ranks.worker_places": "place$ percent",
    "events": "time duration_s subject$ kind$ text$ level$ count",
    "verdict": "answer$ because$",
    "findings": " ".join(LEVELS),  # and their ids: see `counted`
    "recommendations": "directive$ before$ after$ basis$ confidence$ finding$",
    "not_evaluable": "",
    "coverage": "source$ covered_percent interval_s gaps longest_gap_s from_start to_end missing",
    "coverage.missing": "",
    "missing": "",
    "attempts": _SEGMENT,
    "segments": _SEGMENT,
    "tasks": "states measured spreads",
    "tasks.states": "",
    "tasks.spreads": "name$ unit$ min p50 p95 max asked outliers$ count",
}  # fmt: skip
PARTS = {path: tuple(names.replace("$", "").split()) for path, names in _OBJECTS.items()}
_TEXTS = {
    f"{path}.{name.rstrip('$')}".strip(".")
    for path, names in _OBJECTS.items()
    for name in names.split()
    if name.endswith("$")
}
#: objects with nothing but texts
_TEXT_OBJECTS = ("job.sources", "devices.missing", "not_evaluable", "coverage.missing", "missing")


def is_text(name: str) -> bool:
    """Whether the values of this name, short or not, are text and no numbers."""
    full = SHORT.get(name, name)
    return full in _TEXTS or full.rpartition(".")[0] in _TEXT_OBJECTS


def path_of(name: str) -> list[str]:
    """The parts of a name, short or not, that leads to values; of `findings.…` see `counted`.

    Raises ValueError for one that no report has, in words that tell what may be meant.
    """
    parts = SHORT.get(name, name).split(".")
    for depth, part in enumerate(parts):
        path = ".".join(parts[:depth])
        if path not in PARTS:
            raise ValueError(f"{path!r} is a value: nothing is in it")
        if PARTS[path] and part not in PARTS[path]:
            near = suggestion(name, SHORT) or suggestion(part, PARTS[path])
            raise ValueError(f"no report has {name!r}{near}")
    if ".".join(parts) in PARTS:
        raise ValueError(f"{name!r} holds values: name one in it")
    return parts


def counted(name: str) -> str:
    """Of `findings.WHAT` the level or id to count. Raises ValueError as `path_of` does."""
    what, known = name.removeprefix("findings."), (*LEVELS, *BY_ID)
    if what not in known:
        raise ValueError(f"no finding, and no level, is called {what!r}{suggestion(what, known)}")
    return what
