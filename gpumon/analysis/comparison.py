"""Two runs side by side: settings that differ, and numbers with what is better where that is known.

A run that kept its devices busier is better; one that took more memory or power need not be. How
much work a run did is not recorded, so times are compared, and not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import NamedTuple

from gpumon.analysis.known import Values, largest, mean, total
from gpumon.analysis.summary import DeviceRow, RunSummary
from gpumon.model.units import bytes_text, clock_text, plural

#: a change below both is noise, and neither better nor worse
NOISE_PERCENT = 2.0  # of the larger value
NOISE_POINTS = 1.0  # for readings in %


class Setting(NamedTuple):
    """What was asked for or stood fixed, as text; "" where it is not known."""

    name: str
    a: str
    b: str

    @property
    def changed(self) -> bool:
        """Both are known, and differ."""
        return bool(self.a and self.b) and self.a != self.b


class Metric(NamedTuple):
    """One number of both runs; None where it was not measured."""

    name: str  # with its unit, as in JSON
    label: str  # for people
    unit: str
    a: float | None
    b: float | None
    good: int = 0  # +1: more is better, -1: less is; 0: neither

    @property
    def change(self) -> float | None:
        """B − a; None as soon as one is missing."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def ratio(self) -> float | None:
        """B / a; None where one is missing or a is 0."""
        return None if self.b is None or not self.a else self.b / self.a

    @property
    def better(self) -> str:
        """`a` or `b`; "" where that is not defined, not known, or the change is noise."""
        if not self.good or self.a is None or self.b is None:
            return ""
        change = abs(self.b - self.a)
        noise = NOISE_PERCENT / 100 * max(abs(self.a), abs(self.b))
        if change <= noise or (self.unit == "%" and change < NOISE_POINTS):
            return ""
        return "b" if (self.b - self.a) * self.good > 0 else "a"


class Comparison(NamedTuple):
    """`pairs` holds the devices by their order in each run; None where one run has fewer."""

    settings: list[Setting]
    metrics: list[Metric]
    pairs: list[tuple[DeviceRow | None, DeviceRow | None]]


def compare(a: RunSummary, b: RunSummary) -> Comparison:
    """Set two runs side by side."""
    settings = [Setting(name, of(a), of(b)) for name, of in _SETTINGS]
    settings.append(Setting("arguments", *_arguments(a, b)))
    metrics = [
        Metric(name, label, unit, of(a), of(b), good) for name, label, unit, good, of in _METRICS
    ]
    pairs = list(zip_longest(a.devices, b.devices))
    return Comparison(settings, metrics + _same_work(a, b), pairs)


def _same_work(a: RunSummary, b: RunSummary) -> list[Metric]:
    """From marks that both runs have to the next mark: less time, and fewer GPU-hours, are
    better.
    """
    both = [text for text in a.stages if text in b.stages]
    if not both:
        return []
    took_s = [sum(run.stages[text] for text in both) for run in (a, b)]
    hours = [len(run.devices) * seconds / 3600 for run, seconds in zip((a, b), took_s)]
    label = f"same work, {plural(len(both), 'mark')}"
    return [
        Metric("same_work_s", label, "s", took_s[0], took_s[1], good=-1),
        Metric("same_work_gpu_hours", "  GPU-hours of it", "", hours[0], hours[1], good=-1),
    ]


# -- settings ------------------------------------------------------------------------------------


def _each(values: Iterable[object]) -> str:
    """The different values in their order, as one text."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))


def _of_job(name: str) -> Callable[[RunSummary], str]:
    return lambda run: _each(getattr(header.job, name) for header in run.headers if header.job)


def _of_header(name: str) -> Callable[[RunSummary], str]:
    return lambda run: _each(getattr(header, name) for header in run.headers)


def _gpus(run: RunSummary) -> str:
    names = [each.device.name.removeprefix("NVIDIA ") or "GPU" for each in run.devices]
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))


def _time_limit(run: RunSummary) -> str:
    jobs = [header.job for header in run.headers if header.job]
    return _each(clock_text(job.end - job.start) for job in jobs if job.start and job.end)


def _memory(run: RunSummary) -> str:
    limits = [_limit(job.mem_limit_bytes) for job in run.jobs]
    return _each(bytes_text(limit) for limit in limits if limit)


def _limit(limit_bytes: float | None) -> float | None:
    """None also for what cgroups say when there is no limit."""
    return limit_bytes if limit_bytes and limit_bytes < 1 << 60 else None


def _arguments(a: RunSummary, b: RunSummary) -> tuple[str, str]:
    """What only one run has on the command lines of the processes on its devices."""
    words = [
        dict.fromkeys(word for device in run.devices for word in _words(device.command))
        for run in (a, b)
    ]
    if not words[0] or not words[1]:
        return "", ""
    only = [" ".join(word for word in words[n] if word not in words[1 - n]) or "-" for n in (0, 1)]
    return only[0], only[1]


def _words(command: str) -> list[str]:
    """Split at blanks; a flag stays with the value behind it."""
    words: list[str] = []
    for word in command.split():
        if words and words[-1].startswith("-") and " " not in words[-1] and word[0] != "-":
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


_SETTINGS: tuple[tuple[str, Callable[[RunSummary], str]], ...] = (
    ("job", _of_job("id")),
    ("name", _of_job("name")),
    ("cluster", _of_job("cluster")),
    ("partition", _of_job("partition")),
    ("nodes", _of_header("node")),
    ("GPUs", _gpus),
    ("CPUs per node", _of_job("cpus")),
    ("memory per node", _memory),
    ("time limit", _time_limit),
    ("framework", lambda run: _each(device.framework for device in run.devices)),
    ("driver", _of_header("driver")),
    ("CUDA", _of_header("cuda")),
    ("interval s", lambda run: _each(f"{header.interval_s:g}" for header in run.headers)),
    ("gpumon", _of_header("gpumon")),
)


# -- numbers -------------------------------------------------------------------------------------


def gpu_hours(run: RunSummary) -> float:
    """Devices times the time between the first and the last sample, in hours."""
    return len(run.devices) * run.elapsed_s / 3600


def _per_gpu_hour(of: Callable[[RunSummary], float | None]) -> Callable[[RunSummary], float | None]:
    def ratio(run: RunSummary) -> float | None:
        value, hours = of(run), gpu_hours(run)
        return value / hours if value is not None and hours else None

    return ratio


def _share(parts: Values, wholes: Values) -> float | None:
    part, whole = total(parts), total(wholes)
    return part / whole * 100 if part is not None and whole else None


def _over(
    name: str, over: Callable[[Values], float | None], of: str = "devices"
) -> Callable[..., float | None]:
    return lambda run: over(getattr(each, name) for each in getattr(run, of))


def _never_active(run: RunSummary) -> float | None:
    return total(
        None if device.active_share is None else float(device.active_share == 0)
        for device in run.devices
    )


def _idle_percent(run: RunSummary) -> float | None:
    share = mean(device.active_share for device in run.devices)
    return None if share is None else (1 - share) * 100


def _xids(device: DeviceRow) -> float | None:
    """None where the device was never read: then an error would not have been seen either."""
    return float(len(device.xids)) if device.xids or device.coverage else None


def _energy_wh(run: RunSummary) -> float | None:
    energy_j = total(device.energy_j for device in run.devices)
    return None if energy_j is None else energy_j / 3600


def _stepped(name: str) -> Callable[[RunSummary], float | None]:
    return lambda run: None if run.steps is None else getattr(run.steps, name)


def _hours_per_1000_steps(run: RunSummary) -> float | None:
    steps, hours = run.steps.steps if run.steps is not None else None, gpu_hours(run)
    return 1000 * hours / steps if steps and hours else None


def _core_hours(run: RunSummary) -> float | None:
    core_s = total(job.cpu_core_s for job in run.jobs)
    return None if core_s is None else core_s / 3600


#: name as in JSON, name for people, unit, which way is better, and where it comes from
_METRICS: tuple[tuple[str, str, str, int, Callable[[RunSummary], float | None]], ...] = (
    ("elapsed_s", "time recorded", "s", 0, lambda run: run.elapsed_s),
    ("covered_percent", "covered by samples", "%", 0, lambda run: run.covered_percent),
    ("gpu_hours", "GPU-hours", "", 0, gpu_hours),
    ("gpu_busy_mean_percent", "GPU busy, mean", "%", +1, _over("busy_mean", mean)),
    ("gpu_idle_time_percent", "GPU idle time", "%", -1, _idle_percent),
    ("gpus_never_active", "GPUs never active", "", -1, _never_active),
    ("gpu_idle_tail_max_s", "idle until the end", "s", -1, _over("idle_tail_s", largest)),
    ("sm_active_mean_percent", "SM active", "%", +1, _over("sm_active_mean", mean)),
    ("tensor_active_mean_percent", "tensor active", "%", +1, _over("tensor_active_mean", mean)),
    ("gpu_mem_peak_bytes", "GPU memory, peak", "B", 0, _over("mem_peak_bytes", largest)),
    ("gpu_power_mean_w", "GPU power, mean", "W", 0, _over("power_mean_w", mean)),
    ("gpu_energy_wh", "GPU energy", "Wh", 0, _energy_wh),
    ("gpu_energy_wh_per_gpu_hour", "  per GPU-hour", "Wh", 0, _per_gpu_hour(_energy_wh)),
    ("steps", "steps", "", 0, _stepped("steps")),
    ("step_mean_s", "time of a step", "s/step", -1, _stepped("step_mean_s")),
    ("step_p95_s", "  95th percentile", "s/step", -1, _stepped("step_p95_s")),
    ("gpu_hours_per_1000_steps", "  GPU-hours per 1,000", "", -1, _hours_per_1000_steps),
    ("data_wait_percent", "  waiting for data", "%", -1, _stepped("data_wait_percent")),
    ("xids", "Xid errors", "", -1, lambda run: total(map(_xids, run.devices))),
    ("cpu_cores_mean", "CPU cores, mean", "", 0, _over("cpu_cores_mean", total, "jobs")),
    (
        "cpu_used_of_allocated_percent", "  of those allocated", "%", +1,
        lambda run: _share((job.cpu_cores_mean for job in run.jobs), (j.cpus for j in run.jobs)),
    ),
    ("cpu_core_hours_per_gpu_hour", "  hours per GPU-hour", "", 0, _per_gpu_hour(_core_hours)),
    ("mem_peak_bytes", "memory, peak of a node", "B", 0, _over("mem_peak_bytes", largest, "jobs")),
    (
        "mem_peak_of_limit_percent", "  of its limit", "%", 0,
        lambda run: _share(
            (job.mem_peak_bytes for job in run.jobs), (_limit(j.mem_limit_bytes) for j in run.jobs)
        ),
    ),
    ("oom_kills", "killed out of memory", "", -1, _over("oom_kills", total, "jobs")),
)  # fmt: skip
