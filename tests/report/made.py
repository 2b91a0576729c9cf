"""Reports made by hand, for the tests of their forms."""

from dataclasses import replace

from gpumon.analysis.finding import (
    Action,
    Change,
    Finding,
    Gpus,
    Lack,
    NotEvaluable,
    Recommendation,
    ask_for,
)
from gpumon.analysis.rundata import Coverage
from gpumon.analysis.steps import Rank
from gpumon.analysis.summary import DeviceRow
from gpumon.frames.places import Place
from gpumon.model.lines import Line
from gpumon.model.sample import Device
from gpumon.report.model import Happening, Report, SeffFigures
from gpumon.report.usage import Figures, Use
from gpumon.slurm.job import ExitCode, Job, Resources

GIB = 1 << 30
HOSTILE = "a\x1b[2J|b`c`<script>alert(1)</script>\n## x & [y](javascript:z)"
FEWER = Change("--gres", Gpus("gpu:a100:", 4), Gpus("gpu:a100:", 3))


def change(change, basis, confidence="high"):
    """A recommendation that rests on what no finding says."""
    return Recommendation(change, basis, confidence, adds=basis)


def job(**changes):
    """The job of the sketch: 8 GPUs on two nodes, of which two were never used."""
    known = Job(
        raw_id="4711", id="4711", name="train-llama", user="ada", account="lab",
        partition="gpu-a100", state="COMPLETED", exit_code=ExitCode(0), cluster="hpc",
        elapsed_s=8049.0, time_limit_s=86400.0, node_list="gpu[01-02]", nodes=("gpu01", "gpu02"),
        allocated=Resources(cpus=64, mem_bytes=256 * GIB, gpus=8, gpu_types={"a100": 8}),
    )  # fmt: skip
    return replace(known, **changes)


def row(node, index, **changes):
    known = DeviceRow(
        node, Device(index, index, f"GPU-{node}-{index}", "NVIDIA A100-SXM4-80GB"),
        busy_mean=91.0, busy_p50=94.0, busy_p95=99.0, idle_tail_s=180.0,
        mem_peak_bytes=78.5 * GIB, mem_total_bytes=80.0 * GIB, mem_truth="unknown",
        framework="tf", power_mean_w=309.0, energy_j=2.4e6,
        busy_over_time=(10.0, 60.0, 90.0, 95.0, None, 94.0, 93.0, 95.0),
        mem_over_time=(98.0,) * 8,
    )  # fmt: skip
    return known._replace(**changes)


def happened(
    label="gpu01:1",
    at=4000.0,
    text="Xid 79 (fell off the bus)",
    level="critical",
    kind="xid",
    **more,
):
    """So many seconds after the begin."""
    return Happening(1_795_200_000.0 + at, label, text, level, kind, **more)


def stepped(n=0, text="train.py:88 _BaseDataLoaderIter.__next__", **changes):
    """Rank n, as the probe saw it."""
    known = Rank(
        "gpu01", 4312 + n, n, (f"gpu01:{n}",), 12_400.0, 3.1, 0.312, 0.41, 72.0, 4,
        ((Place(text, "data"), 72.4), (Place("train.py:131"), 20.0)),
        ((Place("data.py:31 open"), 90.0),),
    )  # fmt: skip
    return known._replace(**changes)


def events():
    """Of every kind; two of them at nearly the same time."""
    return (
        happened("", 600.0, "mark: epoch 1", "info", "mark"),
        happened("gpu01:0", 2000.0, "Xid 31", "warning", count=57),
        happened(),
        happened(at=4010.0, text="dropped off the bus: GPU is lost"),
        happened("", 6000.0, "mark: epoch 2", "info", "mark"),
        happened(
            "gpu01:0", 7000.0, "throttled (power brake)", "warning", "throttle", duration_s=400.0
        ),
        happened("gpu01:0", 8000.0, "the driver responds again", "info", "state"),
        replace(happened("gpu02:2", text="2 uncorrectable memory errors", kind="ecc"), time=None),
    )


def idle_row(node, index):
    return row(
        node, index, busy_mean=0.0, busy_p50=0.0, busy_p95=0.0, idle_tail_s=8049.0,
        mem_peak_bytes=0.0, mem_truth="real", framework="", power_mean_w=54.0,
        busy_over_time=(0.0,) * 8, mem_over_time=(0.0,) * 8,
    )  # fmt: skip


def finding(**changes):
    known = Finding(
        "gpus-partly-idle", "critical",
        "2 of 8 GPUs were never used (gpu02:2, gpu02:3): 4.5 GPU-hours",
        "No process of the job ever opened them in 02:14:09.",
        subject="gpu02:2,3", devices=("gpu02:2", "gpu02:3"), 
        actions=(ask_for(FEWER),),
        waste_gpu_hours=4.5,
    )  # fmt: skip
    return replace(known, **changes)


def report(**changes):
    known = Report(
        job=job(), start=1_795_200_000.0, end=1_795_208_049.0, elapsed_s=8049.0, running=False,
        used=Figures(
            Use(5.1, 64, 7.9), Use(31.0 * GIB, 256.0 * GIB, 33.0 * GIB), Use(None, 8, 6, "none"),
            Use(69.0, 100.0), Use(474.0 * GIB, None, 474.0 * GIB), is_need=False,
            cpu_core_s=41000.0, mem_source="cgroup",
        ),
        seff=SeffFigures(
            8.0, 46.0, "24.11", ("85 GiB of page cache counted",),
            mem_because="85 GiB of page cache counted",
        ),
        devices=(row("gpu01", 0), row("gpu01", 1), idle_row("gpu02", 2), idle_row("gpu02", 3)),
        findings=(
            finding(),
            finding(
                id="alloc-all-tf", level="warning", waste_gpu_hours=0.0,
                title="TensorFlow preallocated 78.5 of 80 GiB on 6 GPUs; the real need is unknown",
                evidence="Taken within 1 s, flat since.", subject="job",
                actions=(Action("export", Line("export TF_FORCE_GPU_ALLOW_GROWTH=true")),),
            ),
        ),
        suppressed=(), not_evaluable={"low-sm": NotEvaluable(Lack.READINGS, "no GPM")},
        recommendations=(
            change(FEWER, "6 of 8 GPUs worked"),
            change(Change("--mem", 128 * GIB, 20 * GIB), "peak 16.5 GiB on gpu01, 1.2 times that"),
            change(
                Change("", None, Line("export TF_FORCE_GPU_ALLOW_GROWTH=true")),
                "one run with it shows the real peak", "medium",
            ),
        ),
        coverage=Coverage("recording", 99.8, 1.0, 1, 14.0, True, True),
        efficiency={"cpu_percent": 8.0, "mem_percent": 12.9, "time_percent": 9.3,
                    "gpu_busy_percent": 69.0, "gpu_mem_percent": None},
        efficiency_missing={"gpu_mem_percent": "TensorFlow's reservation, need unknown"},
        gpu_hours=17.9, waste_gpu_hours=4.5, version="0.1.0",
    )  # fmt: skip
    return replace(known, **changes)
