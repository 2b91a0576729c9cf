"""`sacct --json` of Slurm 21.08 to 26.05 as jobs.

Its shape drifts with every release: a number is a number or `{set, infinite, number}`, a state a
word or a list of words, a missing text null or "". All of it is read leniently; what is not
understood is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpumon.model.text import clean
from gpumon.slurm import sacct, tres, values
from gpumon.slurm.job import ENDED_STATES, ExitCode, Job, Request, Resources, Step, Usage

_MIB = 1 << 20


def jobs(document: Mapping[str, Any]) -> list[Job]:
    """The jobs of a decoded document, `{"jobs": [...]}`."""
    version = _version(document)
    listed = document.get("jobs")
    each = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return [_job(item, version) for item in each]


def _version(document: Mapping[str, Any]) -> str:
    meta = _at(document, "meta")
    return _text(_at(meta, "slurm", "release")) or _text(_at(meta, "Slurm", "release"))


def _at(value: Any, *path: str) -> Any:
    """What lies at this path of mappings, or None."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(str(item) for item in value)
    return values.known(str(value)) if isinstance(value, (str, int)) else ""


def _number(value: Any) -> int | None:
    """A whole number of any of its shapes; None where it is not set, infinite or a sentinel."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    return values.count(str(value))


def _moment(value: Any) -> float | None:
    number = _number(value)
    return values.moment(str(number)) if number is not None else None


def _cpu_s(times: Any) -> float | None:
    seconds, micro = _number(_at(times, "total", "seconds")), _at(times, "total", "microseconds")
    if seconds is None:
        return None
    return seconds + (_number(micro) or 0) / 1e6


def _exit_code(value: Any) -> ExitCode | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return ExitCode(value >> 8, value & 0x7F)
    code = _number(_at(value, "return_code"))
    signal = _number(_at(value, "signal", "id"))
    if signal is None:
        signal = _number(_at(value, "signal", "signal_id"))
    return ExitCode(code or 0, signal or 0) if code is not None or signal is not None else None


def _told(code: ExitCode | None, state: str) -> ExitCode | None:
    """22.05 writes success for what FAILED with an exit code: then it is not known."""
    return None if state == "FAILED" and code == ExitCode(0) else code


def _derived(value: Any) -> ExitCode | None:
    """The highest of the steps'; 21.08 and 22.05, whose status is a word, lose all but signals."""
    code = _exit_code(value)
    return None if isinstance(_at(value, "status"), str) and code == ExitCode(0) else code


def _tres(items: Any, mem_unit: int) -> dict[str, int]:
    """A list of `{type, name, count}` by TRES name; memory is in units of `mem_unit` bytes."""
    found = {}
    for item in items if isinstance(items, list) else ():
        name, amount = _tres_name(item), _number(_at(item, "count"))
        if name and amount is not None:
            found[name] = amount * mem_unit if name == "mem" else amount
    return found


def _tres_name(item: Any) -> str:
    kind, name = _text(_at(item, "type")), _text(_at(item, "name"))
    return f"{kind}/{name}" if name else kind


def _resources(items: Any) -> Resources:
    return tres.from_tres(_tres(items, _MIB))


def _state(value: Any) -> values.State:
    return values.state(_text(value))


def _job(item: Mapping[str, Any], version: str) -> Job:
    times, state = _at(item, "time"), _state(_at(item, "state", "current"))
    ended = state.word in ENDED_STATES
    limit = _number(_at(times, "limit"))
    infinite = _at(times, "limit", "infinite") is True
    listed = item.get("steps")
    steps = tuple(
        _step(step) for step in (listed if isinstance(listed, list) else ()) if _step_id(step)
    )
    total = _cpu_s(times)
    each = (_cpu_s(_at(step, "time")) for step in (listed if isinstance(listed, list) else ()))
    own = [seconds for seconds in each if seconds is not None]
    job = Job(
        raw_id=str(_number(item.get("job_id")) or ""),
        sluid=_text(item.get("sluid")),
        cluster=_text(item.get("cluster")),
        name=_text(item.get("name")),
        user=_text(item.get("user")) or _text(_at(item, "association", "user")),
        account=_text(item.get("account")),
        partition=_text(item.get("partition")),
        qos=_text(item.get("qos")),
        state=state.word,
        state_flags=state.flags,
        state_by=_text(item.get("kill_request_user")) if state.word == "CANCELLED" else "",
        reason=_text(_at(item, "state", "reason")),
        exit_code=_told(_exit_code(item.get("exit_code")), state.word) if ended else None,
        derived_exit_code=_derived(item.get("derived_exit_code")) if ended else None,
        submit=_moment(_at(times, "submission")),
        eligible=_moment(_at(times, "eligible")),
        start=_moment(_at(times, "start")),
        end=_moment(_at(times, "end")),
        elapsed_s=_number(_at(times, "elapsed")),
        time_limit_s=limit * 60.0 if limit is not None else None,
        time_limit_words="UNLIMITED" if infinite else "",
        restarts=_number(item.get("restart_cnt")),
        node_list=_text(item.get("nodes")),
        nodes=sacct.nodes_of(_text(item.get("nodes"))),
        failed_node=_text(item.get("failed_node")),
        requested=_request(item),
        allocated=_resources(_at(item, "tres", "allocated")),
        # 22.05 leaves the job's own total at 0
        cpu_s=max([total or 0.0, sum(own)]) if own or total is not None else None,
        submit_line=_text(item.get("submit_line")),
        work_dir=_text(item.get("working_directory")),
        std_out=_text(item.get("stdout_expanded")) or _text(item.get("stdout")),
        std_err=_text(item.get("stderr_expanded")) or _text(item.get("stderr")),
        comment=_text(_at(item, "comment", "job")),
        admin_comment=clean(
            str(_at(item, "comment", "administrator") or ""), sacct.MAX_ADMIN_COMMENT
        ),
        slurm_version=version,
    )
    return sacct.joined(sacct.identified(job, _shown(item)), steps)


def _shown(item: Mapping[str, Any]) -> str:
    """The id as people say it: 6_1, 6_[2-4], 14+1, 12."""
    raw = str(_number(item.get("job_id")) or "")
    array = _number(_at(item, "array", "job_id"))
    if array:
        task = _at(item, "array", "task_id")
        number = task if isinstance(task, int) else _number(task)
        if number is not None:
            return f"{array}_{number}"
        waiting = _text(_at(item, "array", "task")).strip("[]")
        return f"{array}_[{waiting}]" if waiting else raw
    leader, offset = _number(_at(item, "het", "job_id")), _number(_at(item, "het", "job_offset"))
    return f"{leader}+{offset or 0}" if leader else raw


def _request(item: Mapping[str, Any]) -> Request:
    """Before 23.02 one figure, `memory`, does not say whether it is per node or per core."""
    required = _at(item, "required")
    per_node = _number(_at(required, "memory_per_node"))
    per_cpu = _number(_at(required, "memory_per_cpu"))
    amount = per_cpu if per_cpu is not None else per_node
    return Request(
        _resources(_at(item, "tres", "requested")),
        mem_form="" if amount is None else "cpu" if per_cpu is not None else "node",
        mem_form_bytes=amount * _MIB if amount is not None else None,
        constraint=_text(item.get("constraints")),
    )


def _step_id(step: Any) -> str:
    """`batch`, `0`: without the job's id, which is there from 23.02 on."""
    shown = _text(_at(step, "step", "id"))
    return shown.rpartition(".")[2]


def _step(item: Mapping[str, Any]) -> Step:
    times, state = _at(item, "time"), _state(item.get("state"))
    ended = state.word in ENDED_STATES
    allocated = _resources(_at(item, "tres", "allocated"))
    step = Step(
        id=_step_id(item),
        name=_text(_at(item, "step", "name")),
        state=state.word,
        exit_code=_told(_exit_code(item.get("exit_code")), state.word) if ended else None,
        start=_moment(_at(times, "start")),
        end=_moment(_at(times, "end")),
        elapsed_s=_number(_at(times, "elapsed")),
        node_list=_text(_at(item, "nodes", "range")),
        node_count=_number(_at(item, "nodes", "count")),
        cpus=allocated.cpus,
        tasks=_number(_at(item, "tasks", "count")),
        allocated=allocated,
        source=sacct.SOURCE,
    )
    if not ended:
        return step
    used = _usage(_at(item, "tres", "requested"))
    known = [seconds for seconds in (_cpu_s(times), used.total.get("cpu")) if seconds is not None]
    peak, average = used.maximum.get("mem"), used.average.get("mem")
    return replace(
        step,
        cpu_s=max(known, default=None),
        max_rss_bytes=int(peak) if peak is not None else None,
        max_rss_node=used.maximum_node.get("mem", ""),
        max_rss_task=used.maximum_task.get("mem"),
        ave_rss_bytes=int(average) if average is not None else None,
        usage=used,
    )


def _usage(requested: Any) -> Usage:
    """TRESUsageIn*; here memory is in bytes and CPU in milliseconds."""

    def amounts(name: str) -> dict[str, float]:
        found = _tres(_at(requested, name), 1)
        return {key: value / 1000 if key == "cpu" else float(value) for key, value in found.items()}

    largest = _at(requested, "max")
    greatest: Sequence[Any] = largest if isinstance(largest, list) else ()
    return Usage(
        amounts("total"),
        amounts("average"),
        amounts("max"),
        {_tres_name(item): _text(_at(item, "node")) for item in greatest},
        {
            _tres_name(item): task
            for item in greatest
            if (task := _number(_at(item, "task"))) is not None
        },
    )
