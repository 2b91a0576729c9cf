"""What one node, GPU or task does not know is in no total, wherever that is shown: unknown with
the reason, or said to be without that one.
"""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.comparison import compare
from gpumon.analysis.summary import run_summary
from gpumon.model.reading import Missing
from gpumon.model.sample import Device, Header, JobContext, Sample
from gpumon.model.view import Status
from gpumon.recording import Recorder
from gpumon.report.build import build, from_accounting
from gpumon.report.gate import matches, parse_gate
from gpumon.report.jobs import JobLine, Listing, Verdict, run_figures, worst_of
from gpumon.report.render.forms import Medium, render
from gpumon.report.render.jobs import json_text
from gpumon.report.render.json import document
from gpumon.report.usage import NO_GPUS, Use, cores_text, together, total, unknown
from gpumon.services.figures import sampled
from gpumon.services.runs import open_run, run_of
from gpumon.site import Site
from gpumon.slurm.groups import groups_of
from gpumon.slurm.job import Job, Resources, Step
from gpumon.store import Store
from gpumon.tui.screens.array.rows import measure
from gpumon.tui.screens.job.request import request_lines
from tests.analysis.build import device, evidence, node
from tests.tui.looking import Looking

GIB, SECONDS, NODES = 1 << 30, 120, ("gpu01", "gpu02")
DENIED = Missing("no-permission", "cgroup")
#: reading -> its group, names in `used` that are not known without it, its share, the metric of
#: a comparison, the figure of a job or task, its row on the page
READINGS: dict[str, tuple[str, str, str, str, str, str]] = {
    "cpu_cores_used": ("job", "cpu_cores_mean cpu_cores_peak", "cpu", "cpu_cores_mean", "cores",
                       "CPU"),
    "mem_used_bytes": ("job", "mem_peak_bytes mem_max_node_bytes", "mem", "mem_peak_bytes", "mem",
                       "memory"),
    "busy_percent": ("device", "gpu_busy_percent gpus_worth", "gpu_busy", "gpu_busy_mean_percent",
                     "busy", "GPUs"),
}  # fmt: skip
SHORT = {"cpu": "cpu.percent", "mem": "mem.percent", "gpu_busy": "gpu.percent"}


def job(start=0.0, **changes):
    known = Job(
        raw_id="4711", id="4711", state="RUNNING", start=start, elapsed_s=120.0, nodes=NODES,
        node_list="gpu[01-02]", sources={"id": "made"},
        allocated=Resources(cpus=32, mem_bytes=128 * GIB, gpus=2, nodes=2, tres={"cpu": 32}),
    )  # fmt: skip
    return replace(known, **changes)


def header(name, start):
    context = JobContext("4711", nodes="gpu[01-02]", node_count=2, cpus=16,
                         mem_limit_bytes=64 * GIB, gpus=1)  # fmt: skip
    gpu = Device(0, 0, f"GPU-{name}", "H100", 0, None, {"mem_total_bytes": 80 * GIB})
    return Header(name, "boot", start, 0.0, 1.0, "0", [gpu], driver="580", job=context)


def sample(start, second, denied=""):
    """One second of a node; `denied`: the reading that it does not give."""
    used = {"cpu_cores_used": 6.7, "cpu_s": 6.7 * second, "mem_used_bytes": 33.0 * GIB}
    gpu = {"busy_percent": 41.0, "mem_used_bytes": 55.0 * GIB}
    rows: dict[str, Any] = {"job": {"": used}, "device": {0: gpu}}
    if denied:
        (row,) = rows[READINGS[denied][0]].values()
        row[denied] = row["cpu_s"] = DENIED
    return Sample(start + second, float(second), rows)


def samples(denied, nodes=NODES):
    """Of nodes of which the second does not give a reading: (header, samples) of each."""
    start = time.time() - SECONDS
    for name in nodes:
        lacks = denied if name == "gpu02" else ""
        yield header(name, start), [sample(start, n, lacks) for n in range(SECONDS)]


def recorded(folder, denied, nodes=NODES):
    for head, those in samples(denied, nodes):
        recorder = Recorder(str(folder / f"{head.node}.gpumon"))
        recorder.header(head)
        for each in those:
            recorder.add(each)
        recorder.close()
    this = job(head.time)
    return run_of(open_run(str(folder))).data(this, Site(), live=True, shared=True)


@pytest.mark.parametrize("denied", READINGS)
def test_a_recording_of_two_nodes_of_which_one_lacks_a_reading(tmp_path, denied):
    _, names, share, metric, figure, row = READINGS[denied]
    run = recorded(tmp_path, denied)
    report = build(run)
    body = document(report)
    assert {body["used"][name] for name in names.split()} == {None}
    assert body["efficiency"][f"{share}_percent"] is None
    assert "without gpu02" in body["missing"][f"{share}_percent"]
    for form in ("text", "md", "html"):
        said = render(form, [report], Medium())
        assert "without gpu02" in said, form
        assert "n/a" in next(line for line in said.splitlines() if row in line and "n/a" in line)
    for sign in ("<", ">=", "==", "!="):
        gate = parse_gate(f"{SHORT[share]} {sign} 50")
        assert matches(gate, [report]) == (False, [SHORT[share]])
    summary = run_summary(run)
    assert {each.name: each.a for each in compare(summary, summary).metrics}[metric] is None
    listing = Listing([JobLine(groups_of([run.job])[0], True, run_figures(report))])
    (line,) = json.loads(json_text(listing, 0.0))["jobs"]
    for name, of in (("mem_bytes", "mem"), ("gpu_busy_percent", "busy")):
        assert (line[name] is None) is (of == figure)
        assert ("gpu02" in line["missing"].get(name, "")) is (of == figure)


@pytest.mark.parametrize("denied", READINGS)
def test_the_screens_of_such_a_job(denied):
    *_, figure, row = READINGS[denied]
    store = Store()
    for head, those in samples(denied):
        store.header(head.node, head)
        store.status(head.node, Status("live", head.time, "", "ssh"))
        for each in those:
            store.add(head.node, each)
    silent = ("gpu03", "gpu04")
    looking = Looking(nodes=store.nodes(), now=head.time + SECONDS - 1, job=job(head.time))
    for this in (looking, looking.at(job=job(head.time, nodes=(*NODES, *silent)))):
        (line,) = (line for line in request_lines(this.moment) if line.name == row)
        if "1 unknown" not in line.used:  # else it is a share of those that are named
            assert line.share is None
            assert line.remark.startswith("without gpu02")
        assert "peak" not in line.peak
    assert getattr(measure(looking.moment), figure).used is None
    figures = measure(looking.at(job=job(head.time)).moment)
    for name in ("cores", "mem", "busy"):
        assert (getattr(figures, name).used is None) is (name == figure)
    assert "gpu02" in getattr(figures, figure).why


def test_a_node_that_was_not_recorded_is_in_no_total(tmp_path):
    body = document(build(recorded(tmp_path, "", NODES[:1])))
    names = ("cpu_core_s cpu_cores_mean mem_peak_bytes gpus_active gpus_worth gpu_busy_percent "
             "gpu_mem_peak_bytes gpu_energy_j")  # fmt: skip
    assert {body["used"][name] for name in names.split()} == {None}
    assert "1 of 2 nodes were not recorded" in body["missing"].values()
    assert {body["efficiency"][f"{name}_percent"] for name in SHORT} == {None}
    ((head, those),) = samples("", NODES[:1])
    here = sampled(head, those)
    assert (here.busy.used, here.mem.used, here.gpus.peak) == (41.0, 33.0 * GIB, 1)
    both = together([here, unknown("not recorded", "gpu02")])
    assert (both.busy.used, both.mem.used, both.gpus.peak) == (None, None, None)
    assert both.mem.why == "without gpu02: not recorded"


FIGURES = st.one_of(st.none(), st.floats(0, 8))
USES = st.builds(Use, FIGURES, FIGURES, FIGURES, of=st.sampled_from(NODES))


@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=5))
def test_any_run_has_a_total_if_every_node_has(figures):
    nodes = [
        node(30, f"gpu{n:02}", job={"cpu_cores_used": cores}, peak60_cores=cores,
             mem_peak_bytes=None if mem is None else mem * GIB)
        for n, (cores, mem) in enumerate(figures)
    ]  # fmt: skip
    held = Resources(cpus=8 * len(nodes), mem_bytes=64 * GIB * len(nodes), nodes=len(nodes))
    this = job(state="COMPLETED", nodes=tuple(each.node for each in nodes), allocated=held)
    body = document(build(evidence(30, nodes=nodes, job=this)))
    for values, name, percent, scale in zip(
        zip(*figures), ("cpu_cores_mean", "mem_peak_bytes"), ("cpu_percent", "mem_percent"),
        (1, GIB),
    ):  # fmt: skip
        if None in values:
            assert (body["used"][name], body["efficiency"][percent]) == (None, None)
            assert body["missing"][percent]
        else:
            assert body["used"][name] == pytest.approx(scale * sum(values), rel=1e-5)
            assert 0 <= body["efficiency"][percent] <= 100


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=1, max_size=8))
def test_any_gpus_have_a_mean_if_each_has(busy):
    gpus = [device(30, n, busy_percent=each, mem_used_bytes=GIB) for n, each in enumerate(busy)]
    body = document(build(evidence(30, gpus, job=job(state="COMPLETED"))))
    known = body["used"]["gpu_busy_percent"]
    assert (known is None) is (None in busy)
    assert known is None or min(busy) - 1e-3 <= known <= max(busy) + 1e-3


@given(st.lists(USES, min_size=1, max_size=5))
def test_a_total_is_the_sum_or_unknown(uses):
    found = total(uses)
    for name in ("used", "given", "peak"):
        values = [getattr(each, name) for each in uses]
        assert getattr(found, name) == (None if None in values else pytest.approx(sum(values)))
    assert found.share is None or 0 <= found.share <= 1
    assert found.why or all(each.is_known for each in uses)


def test_several_jobs_as_one():
    parts = [Verdict(1.0, "a", level="info"), Verdict(2.0, "b", level="critical")]
    found = worst_of([*parts, Verdict(missing=NO_GPUS)])
    assert (found.waste_gpu_hours, found.advice) == (3.0, "b")
    partly = worst_of([*parts, Verdict(missing="not recorded")])
    assert (partly.waste_gpu_hours, partly.missing) == (None, "without 1 of 3: not recorded")


# -- beyond what there can be ----------------------------------------------------------------------


def accounted(**changes):
    held = Resources(cpus=16, mem_bytes=128 * GIB, gpus=0, nodes=1, tres={"cpu": 16})
    known = job(state="COMPLETED", end=100.0, elapsed_s=100.0, nodes=("gpu01",), allocated=held,
                slurm_version="24.11.1", acct_gather="cgroup/v2")  # fmt: skip
    return replace(known, **changes)


def said_of(this):
    return document(build(from_accounting(this, Site())))


def test_what_cannot_be_is_marked_and_not_printed():
    steps = tuple(Step(f"{n}", state="COMPLETED", max_rss_bytes=GIB, tasks=1, cpu_s=1.8)
                  for n in range(3000))  # fmt: skip
    this = accounted(steps=steps, cpu_s=5408.0)
    body = said_of(this)
    assert (body["used"]["mem_peak_bytes"], body["efficiency"]["mem_percent"]) == (None, None)
    assert "2.93 TiB" in body["missing"]["mem_percent"]
    assert (body["used"]["cpu_core_s"], body["efficiency"]["cpu_percent"]) == (None, None)
    assert body["missing"]["cpu_percent"] == "54.1 cores of 16 cores cannot be right"
    gpu = device(30, 0, busy_percent=50.0, mem_used_bytes=900 * GIB)
    body = document(build(evidence(30, [gpu], job=accounted())))
    assert body["used"]["gpu_mem_peak_bytes"] is None
    assert body["devices"][0]["missing"]["mem_used_bytes"] == "n/a more than the GPU has"


def test_one_nodes_memory_is_not_the_jobs():
    step = Step("batch", state="COMPLETED", max_rss_bytes=GIB, tasks=2, node_count=2, cpu_s=9.0)
    body = said_of(job(state="COMPLETED", end=100.0, steps=(step,), cpu_s=9.0))
    assert (body["used"]["mem_peak_bytes"], body["used"]["mem_max_node_bytes"]) == (None, GIB)
    assert "node that used most" in body["missing"]["mem_percent"]


def test_a_running_job_does_not_end_as_it_starts():
    assert said_of(job(1e9, elapsed_s=None))["job"]["end"] is None
    assert said_of(job(1e9, elapsed_s=60.0))["job"]["end"] == 1e9 + 60


@pytest.mark.parametrize(
    ("line", "gres", "gpus"),
    [("sbatch job.sh", "", 0), ("sbatch --gpus=2 job.sh", "", None), ("", "gpu:2", None)],
)
def test_the_list_of_jobs_and_the_report_agree_on_gpus(line, gres, gpus):
    this = accounted(submit_line=line)
    this = replace(this, allocated=replace(this.allocated, gpus=None),
                   requested=replace(this.requested, gres=gres))  # fmt: skip
    assert said_of(this)["allocated"]["gpus"] == groups_of([this])[0].gpus == gpus


@given(st.one_of(st.none(), st.floats(0, 1e6)), st.one_of(st.none(), st.floats(0.5, 1e3)))
def test_a_share_is_between_0_and_1(used, most):
    use = Use(used, most).within(most, cores_text)
    assert use.share is None or 0 <= use.share <= 1
    assert use.used is None or most is None or use.used <= 1.05 * most
