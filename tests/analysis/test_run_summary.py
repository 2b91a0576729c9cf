"""A run's summary from evidence: what `summarise` makes of the samples themselves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon import demos
from gpumon.analysis.gather import gather
from gpumon.analysis.run_summary import run_summary
from gpumon.analysis.summary import RunSummary, summarise
from gpumon.model.reading import LOST
from gpumon.sources.replay import read_stream
from tests.analysis.test_summary import GPU, JOB, busy, header, sample
from tests.recording.streams import KINDS, stream

HAPPENINGS = [kind for kind in KINDS if kind not in ("back", "slower")]  # which change the grid

#: time-weighted there, and here over bins, which are not full where something begins or ends
MEANS = (
    "busy_mean", "active_share", "sm_active_mean", "tensor_active_mean", "power_mean_w", "coverage",
    "cpu_cores_mean", "idle_tail_s",
)  # fmt: skip
OF_BINS = ("busy_p50", "busy_p95")
MAIN = ("framework", "command", "reserved")  # peaks are known to 24 bits; a PID may come twice


def summary(*streams):
    return run_summary(gather(streams))


def assert_alike(run, told, *, but=()):
    """What no grid can change is the same, and means are near."""
    assert told.headers == run.headers
    assert (told.start, told.end, told.gaps) == (run.start, run.end, run.gaps)
    assert told.covered_percent == pytest.approx(run.covered_percent)
    for a, b in zip([*run.devices, *run.jobs], [*told.devices, *told.jobs], strict=True):
        for name in set(a._fields) - {*but}:
            value, own = getattr(a, name), getattr(b, name)
            if value is not None and name in MEANS:
                assert own == pytest.approx(value, rel=0.05, abs=0.5), name
            else:
                assert own == (pytest.approx(value) if isinstance(value, float) else value), name


@pytest.mark.parametrize("name", demos.names())
def test_the_shipped_recordings_as_sample_by_sample(name):
    items = list(read_stream(demos.path(name)))
    assert_alike(summarise(items), summary((items[0].node, items)), but=OF_BINS)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 99),
    st.integers(30, 400),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(HAPPENINGS)), max_size=8),
)
def test_whatever_happens(seed, ticks, happenings):
    items = list(stream(seed, ticks, happenings))
    assert_alike(summarise(items), summary(("gpu01", items)), but=(*MEANS, *OF_BINS, *MAIN))


def test_several_nodes_keep_their_names():
    one = [header(GPU), *(busy(at, 10) for at in range(1000, 1010))]
    two = [header(GPU, node="gpu02"), *(busy(at, 90) for at in range(1005, 1020))]
    run = summary(("gpu01", one), ("gpu02", two))
    assert [(each.node, each.busy_mean) for each in run.devices] == [("gpu01", 10), ("gpu02", 90)]
    assert (run.start, run.end, run.covered_percent) == (1000, 1019, 100)


def test_nothing_and_a_node_without_samples():
    assert summary() == RunSummary([], 0.0, 0.0, 0.0, 0, [], [])
    run = summary(("gpu01", [header(GPU)]))
    (device,) = run.devices
    assert (run.start, run.end, run.covered_percent, device.coverage) == (1000, 1000, 0, 0)
    assert (device.busy_mean, device.idle_tail_s, device.energy_j, device.active_share) == (
        None,
    ) * 4


def test_kills_and_charged_memory_from_before_the_samples_count():
    told = {"cpu_cores_used": 2, "mem_used_bytes": 4, "mem_peak_bytes": 30, "oom_kills": 1}
    gone = {
        "cpu_cores_used": LOST,
        "mem_used_bytes": LOST,
        "mem_peak_bytes": LOST,
        "oom_kills": LOST,
    }
    items = [header(job=JOB), sample(1000, job=told), sample(1001, job=gone)]
    (job,) = summary(("gpu01", items)).jobs
    assert (job.oom_kills, job.mem_charged_peak_bytes, job.mem_peak_bytes) == (1, 30, 4)
