"""`sacct --json` of Slurm 21.08 to 26.05, as the rows that `sacct -P` would print.

Its shape drifts with every release: a number is a number or `{set, infinite, number}`, a state a
word or a list of words, a missing text null or "". All of it is read leniently; what is not
understood is left blank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpumon.slurm import sacct, values
from gpumon.slurm.job import Job
from gpumon.slurm.records import Unread

#: fields of sacct that stand in the document as they are, of a job and of a step
_JOB = {
    "jobidraw": ("job_id",),
    "sluid": ("sluid",),
    "cluster": ("cluster",),
    "jobname": ("name",),
    "account": ("account",),
    "partition": ("partition",),
    "qos": ("qos",),
    "reason": ("state", "reason"),
    "submit": ("time", "submission"),
    "eligible": ("time", "eligible"),
    "start": ("time", "start"),
    "end": ("time", "end"),
    "elapsedraw": ("time", "elapsed"),
    "timelimitraw": ("time", "limit"),
    "restarts": ("restart_cnt",),
    "nodelist": ("nodes",),
    "failednode": ("failed_node",),
    "constraints": ("constraints",),
    "submitline": ("submit_line",),
    "workdir": ("working_directory",),
    "comment": ("comment", "job"),
    "admincomment": ("comment", "administrator"),
}
_STEP = {
    "jobname": ("step", "name"),
    "state": ("state",),
    "start": ("time", "start"),
    "end": ("time", "end"),
    "elapsedraw": ("time", "elapsed"),
    "nodelist": ("nodes", "range"),
    "nnodes": ("nodes", "count"),
    "ntasks": ("tasks", "count"),
}


def jobs(document: Mapping[str, Any], unread: Unread | None = None) -> list[Job]:
    """The jobs of a decoded document, `{"jobs": [...]}`; others of its items go to `unread`."""
    items = document.get("jobs")
    for item in items if isinstance(items, list) else ():
        if unread is not None and not isinstance(item, dict):
            unread.add(str(item))
    rows = (row for item in _list(items) for row in _rows(item))
    meta = document.get("meta")
    version = _text(meta, "slurm", "release") or _text(meta, "Slurm", "release")
    return sacct.jobs(rows, unread=unread, slurm_version=version)


def _rows(item: Any) -> Iterator[sacct.Row]:
    """A job's row, then those of its steps."""
    steps = [(id, step) for step in _list(_at(item, "steps")) if (id := _step_id(step))]
    known = (_cpu_s(step) for step in _list(_at(item, "steps")))
    own = [seconds for seconds in known if seconds is not None]
    total = _cpu_s(item)
    state, by = _text(item, "state", "current"), _text(item, "kill_request_user")
    first, comma, flags = state.partition(",")
    failed = first == "FAILED"
    row = {name: _text(item, *path) for name, path in _JOB.items()}
    yield {
        **row,
        "jobid": _shown(item),
        "user": _text(item, "user") or _text(item, "association", "user"),
        "state": f"{first} by {by}{comma}{flags}" if by and first == "CANCELLED" else state,
        "exitcode": _exit_code(_at(item, "exit_code"), lost=failed),
        # 21.08 and 22.05, whose status is a word, lose all but signals
        "derivedexitcode": _exit_code(
            _at(item, "derived_exit_code"),
            lost=isinstance(_at(item, "derived_exit_code", "status"), str),
        ),
        "timelimit": "UNLIMITED" if _at(item, "time", "limit", "infinite") is True else "",
        "reqmem": _req_mem(_at(item, "required")),
        "reqtres": _tres(_at(item, "tres", "requested"), "M"),
        "alloctres": _tres(_at(item, "tres", "allocated"), "M"),
        # 22.05 leaves the job's own total at 0
        "totalcpu": _duration(max(total or 0.0, sum(own)) if total is not None or own else None),
        "stdout": _text(item, "stdout_expanded") or _text(item, "stdout"),
        "stderr": _text(item, "stderr_expanded") or _text(item, "stderr"),
    }
    for id, step in steps:
        yield {"jobidraw": f"{row['jobidraw']}.{id}", **_step(step)}


def _step(item: Any) -> dict[str, str]:
    used = _at(item, "tres", "requested")
    largest = _list(_at(used, "max"))
    peak = next((each for each in largest if _tres_name(each) == "mem"), None)
    row = {name: _text(item, *path) for name, path in _STEP.items()}
    return {
        **row,
        "exitcode": _exit_code(_at(item, "exit_code"), lost=row["state"].startswith("FAILED")),
        "alloctres": _tres(_at(item, "tres", "allocated"), "M"),
        "totalcpu": _duration(_cpu_s(item)),
        "maxrss": _text(peak, "count"),
        "tresusageintot": _tres(_at(used, "total")),
        "tresusageinmax": _tres(largest),
    }


def _at(value: Any, *path: str) -> Any:
    """What lies at this path of mappings, or None."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any, *path: str) -> str:
    """A text or number of any of its shapes; "" where it is not set, or infinite."""
    value = _at(value, *path)
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, list):
        value = ",".join(str(item) for item in value)
    return values.known(str(value)) if isinstance(value, (str, int)) else ""


def _number(value: Any, *path: str) -> int | None:
    return values.count(_text(value, *path))


def _cpu_s(item: Any) -> float | None:
    seconds = _number(item, "time", "total", "seconds")
    micro = _number(item, "time", "total", "microseconds")
    return None if seconds is None else seconds + (micro or 0) / 1e6


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes) // 60}:{int(minutes) % 60:02}:{rest:09.6f}"


def _exit_code(value: Any, *, lost: bool) -> str:
    """`1:0`. `lost`: success stands here for what is not known; 22.05 writes it for failures."""
    if isinstance(value, int) and not isinstance(value, bool):
        code, signal = value >> 8, value & 0x7F
    else:
        told = _number(value, "return_code"), _number(value, "signal", "id")
        old = _number(value, "signal", "signal_id")
        if told == (None, None) and old is None:
            return ""
        code, signal = told[0] or 0, told[1] or old or 0
    return "" if lost and not code and not signal else f"{code}:{signal}"


def _req_mem(required: Any) -> str:
    """Before 23.02 one figure, `memory`, does not tell whether it is per node or per core."""
    per_cpu, per_node = _text(required, "memory_per_cpu"), _text(required, "memory_per_node")
    return f"{per_cpu}Mc" if per_cpu else f"{per_node}Mn" if per_node else ""


def _tres(items: Any, mem_unit: str = "") -> str:
    """A list of `{type, name, count}`; of usage memory is in bytes and CPU in milliseconds."""
    amounts = {_tres_name(item): _number(item, "count") for item in _list(items)}
    found = {name: str(amount) for name, amount in amounts.items() if amount is not None}
    if mem_unit and "mem" in found:
        found["mem"] += mem_unit
    elif not mem_unit and "cpu" in found:
        found["cpu"] = _duration((amounts["cpu"] or 0) / 1000)
    return ",".join(f"{name}={value}" for name, value in found.items())


def _tres_name(item: Any) -> str:
    kind, name = _text(item, "type"), _text(item, "name")
    return f"{kind}/{name}" if name else kind


def _shown(item: Any) -> str:
    """The id as people say it: 6_1, 6_[2-4], 14+1, 12."""
    raw = _text(item, "job_id")
    array, leader = _number(item, "array", "job_id"), _number(item, "het", "job_id")
    if array:
        task = _at(item, "array", "task_id")
        number = task if isinstance(task, int) else _number(task)
        if number is not None:
            return f"{array}_{number}"
        waiting = _text(item, "array", "task").strip("[]")
        return f"{array}_[{waiting}]" if waiting else raw
    return f"{leader}+{_number(item, 'het', 'job_offset') or 0}" if leader else raw


def _step_id(step: Any) -> str:
    """`batch`, `0`: without the job's id, which is there from 23.02 on."""
    return _text(step, "step", "id").rpartition(".")[2]
