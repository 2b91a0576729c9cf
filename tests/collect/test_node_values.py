"""Clocks that are set, reads that stall and files that lie, on the node's own side."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect import agent, base
from gpumon.collect.base import Tick
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import JobPath, find_job_cgroup
from gpumon.collect.network import Network
from gpumon.collect.nvml import cursor as nvml_cursor
from gpumon.collect.nvml.cursor import Cursor
from gpumon.collect.proc.processes import Identifier
from gpumon.collect.procfs import ProcFs
from gpumon.collect.rates import Moment, Rates
from gpumon.model.plausible import node_ceilings, refuse_above
from gpumon.model.reading import Missing

from .trees import SLUID, V2_STEP_CGROUP, plant, plant_process, plant_v2


class Clocks:
    """A wall clock that may be set and a monotonic one, in place of the module `time`."""

    def __init__(self):
        self.mono, self.offset = 1000.0, 1.7e9

    def time(self):
        return self.mono + self.offset

    def monotonic(self):
        return self.mono


# -- ticks ---------------------------------------------------------------------------------------
@given(
    st.floats(0.1, 3600),
    st.lists(st.tuples(st.floats(-1e8, 1e8), st.floats(0, 5)), min_size=1, max_size=20),
)
def test_the_next_tick_is_near_whatever_the_wall_clock_does(interval_s, schedule):
    """Neither hours of sleep nor a busy loop, when the clock is set between any two ticks."""
    clocks = Clocks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "time", clocks)
        for step_s, work_s in schedule:
            due = agent.next_tick(interval_s)
            clocks.offset += step_s  # while it sleeps
            assert 0.099 * interval_s <= due - clocks.mono <= 1.101 * interval_s
            clocks.mono = due + work_s


def test_nodes_tick_together():
    due = agent.next_tick(5.0) - time.monotonic() + time.time()
    assert due % 5 == pytest.approx(0, abs=0.05) or due % 5 == pytest.approx(5, abs=0.05)


def test_many_nodes_share_the_interval_out():
    names = [f"gpu{number:04d}" for number in range(1024)]
    phases = [agent.phase_of(name, 5.0) for name in names]
    assert phases == [agent.phase_of(name, 5.0) for name in names]
    assert sorted(set(phases)) == [0, 1, 2, 3, 4]
    assert max(map(phases.count, range(5))) < 1.3 * 1024 / 5
    assert {agent.phase_of(name, 0.5) for name in names} == {0.0}
    due = agent.next_tick(5.0, 3.0) - time.monotonic() + time.time()
    assert (due - 3) % 5 == pytest.approx(0, abs=0.05) or (due - 3) % 5 == pytest.approx(
        5, abs=0.05
    )


# -- the driver's buffers --------------------------------------------------------------------------
class Ring:
    """The driver's buffer: a sample every `period_s`, stamped with the wall clock."""

    def __init__(self, clocks, period_s, held):
        self.clocks, self.period_s, self.held = clocks, period_s, held
        self.samples = []  # (µs, number) in the order in which they were taken

    def run(self, seconds, step_at=0.0, step_s=0.0):
        """Let time pass; the clock is set once on the way."""
        end = self.clocks.mono + seconds
        at = self.clocks.mono + step_at
        while self.clocks.mono < end:
            nap = min(self.period_s, end - self.clocks.mono)
            self.clocks.mono += nap
            if step_s and self.clocks.mono >= at:
                self.clocks.offset, step_s = self.clocks.offset + step_s, 0.0
            if nap == self.period_s:
                number = len(self.samples)
                self.samples.append((int(self.clocks.time() * 1e6), number))

    def since(self, stamp_us):
        return sorted(s for s in self.samples[-self.held :] if s[0] > stamp_us)


@given(
    st.sampled_from((1 / 6, 0.5, 1.0)),
    st.integers(12, 120),
    st.lists(
        st.one_of(st.none(), st.tuples(st.floats(0, 2), st.floats(-1e6, 1e6))),
        min_size=3,
        max_size=15,
    ),
)
def test_a_busy_device_never_reads_as_idle_when_the_clock_is_set(period_s, held, steps):
    """Read every 2 s and a bit; nothing new means unknown at once, and something within 2 reads."""
    clocks = Clocks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml_cursor, "time", clocks)
        ring, cursor, empty, shown = Ring(clocks, period_s, held), Cursor(), 0, []
        for step in [None, *steps, None, None]:
            ring.run(2.05, *(step or ()))
            first = len(ring.samples) - 1 - int(2.1 / period_s)
            new = cursor.read(ring.since, must_come=False)
            assert not isinstance(new, Missing)
            cursor.end(new)
            assert new or cursor.stepped
            empty = 0 if new else empty + 1
            assert empty < 2
            if step is None and shown and not cursor.stepped:
                assert all(number >= first for _, number in new[-1:])  # of now, not of long ago
            shown += new


# -- rates -----------------------------------------------------------------------------------------
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 3.0),  # a stall before the counter is taken
            st.floats(0.0, 3.0),  # and one after
            st.booleans(),  # whether there is one
        ),
        min_size=4,
        max_size=20,
    )
)
def test_a_stall_at_any_moment_gives_no_false_rate(stalls):
    """A counter that grows by 1000 a second, read every 2 s by a reader that may be stopped."""
    clocks = Clocks()
    rates = Rates()
    missing = 0
    for before, after, stalled in [*stalls, (0, 0, False), (0, 0, False)]:
        clocks.mono += 2.0
        began = clocks.mono
        clocks.mono += before if stalled else 0.001
        counter = 1000 * clocks.mono
        clocks.mono += after if stalled else 0.001
        got = rates.per_second("x", counter, Moment(clocks.mono, clocks.mono - began))
        if isinstance(got, Missing):
            missing += 1
        else:
            assert got == pytest.approx(1000, rel=0.26)
            missing = 0
    assert missing == 0  # without a stall for two periods it is known again


def test_a_slow_look_at_an_adapter_does_not_change_its_rate(tmp_path):
    """The speed of an interface is asked from its driver, which may take seconds."""
    clocks = Clocks()

    class Slow(Network):
        slow = False

        def _ethernet_speed(self, name):
            clocks.mono += 4.0 if self.slow else 0.0
            return 1e11

    net = Slow(proc=str(tmp_path), sys=str(tmp_path), clock=clocks.monotonic)
    row = ["0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "0"]
    rates = []
    for number, slow in enumerate((False, True, False, True, True)):
        net.slow = slow
        clocks.mono = 1000.0 + 5 * number
        text = " ".join([str(5_000_000 * (number + 1)), *row])
        plant(tmp_path, {"self/net/dev": f"x\ny\neth0: {text}\n"})
        tick = Tick(0.0, clocks.mono)
        net.collect(tick)
        rates.append(tick.rows["net"]["eth0"]["rx_bytes_per_s"])
    assert rates[1:] == pytest.approx([1e6] * 4)


@pytest.mark.parametrize(
    ("driver", "speed", "rx", "known"),
    [
        ("mlx5_core", "25000", 3.1e9, True),
        ("mlx5_core", "25000", 4.5e9, False),
        ("virtio_net", "10000", 4.5e9, True),
        ("mlx5_core", "-1", 4.5e9, True),
    ],
)
def test_traffic_beyond_the_speed_of_an_adapter(tmp_path, driver, speed, rx, known):
    clocks = Clocks()
    net = Network(proc=str(tmp_path), sys=str(tmp_path), clock=clocks.monotonic)
    plant(tmp_path, {"class/net/eth0/device/vendor": "", "class/net/eth0/speed": f"{speed}\n"})
    (tmp_path / "class/net/eth0/device/driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")
    for number in range(2):
        text = " ".join([str(int(1000 + rx * 5 * number)), *["0"] * 15])
        plant(tmp_path, {"self/net/dev": f"x\ny\neth0: {text}\n"})
        tick = Tick(0.0, clocks.mono)
        net.collect(tick)
        clocks.mono += 5
    got = tick.rows["net"]["eth0"]["rx_bytes_per_s"]
    assert got == (pytest.approx(rx) if known else Missing("implausible"))


# -- identity and age ------------------------------------------------------------------------------
def test_a_process_that_starts_after_the_clock_was_set_starts_in_its_new_time(
    tmp_path, monkeypatch
):
    clocks = Clocks()
    monkeypatch.setattr(base, "time", clocks)
    plant(tmp_path, {"stat": "btime 1700000000\n"})
    plant_process(tmp_path, 42, start=1000)
    proc = ProcFs(str(tmp_path))
    identifier = Identifier(proc, None, 1000)
    ticks = os.sysconf("SC_CLK_TCK")
    assert identifier.identify(42, proc.stat(42)).start == 1_700_000_000 + 1000 / ticks
    clocks.offset -= 3600
    plant(tmp_path, {"stat": "btime 1699996400\n"})
    assert identifier.identify(42, proc.stat(42)).start == 1_699_996_400 + 1000 / ticks


# -- values ----------------------------------------------------------------------------------------
@given(
    st.integers(1, 512),
    st.integers(1 << 30, 1 << 42),
    st.dictionaries(
        st.sampled_from(("cpu_cores_used", "mem_used_bytes", "mem_charged_bytes")),
        st.floats(0, 100),
    ),
)
def test_a_job_has_no_more_than_its_node(cpus, total, factors):
    whole = {"cpu_cores_used": cpus, "mem_used_bytes": total, "mem_charged_bytes": total}
    row = {name: factor * whole[name] for name, factor in factors.items()}
    rows = {"job": {"": dict(row)}}
    refuse_above(rows, node_ceilings(cpus, total))
    for name, value in rows["job"][""].items():
        if factors[name] <= 1:
            assert value == row[name]
        elif factors[name] > 2.6:  # one CPU more, and a quarter
            assert value == Missing("implausible")
            assert value.detail


def test_the_agent_refuses_more_memory_than_there_is(tmp_path):
    mounts = plant_v2(tmp_path)
    job = find_job_cgroup(V2_STEP_CGROUP, {})
    assert isinstance(job, JobPath)
    plant(tmp_path, {f"{job.paths['']}/memory.current".lstrip("/"): f"{1 << 59}\n"})
    one = agent.Agent(1.0, {})
    try:
        one.collectors = [JobCgroup(job, mounts=mounts), one._host]
        rows = one.sample().rows["job"][""]
    finally:
        one.close()
    assert SLUID in job.paths[""]
    assert rows["mem_charged_bytes"] == Missing("implausible")
