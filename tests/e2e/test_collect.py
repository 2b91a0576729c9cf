"""The agent as a process: how it lives and ends, and what a reader of its stream sees."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import termios
import time
from array import array
from itertools import pairwise

import pytest

from gpumon.collect.agent import phase_of
from gpumon.collect.nvml.collector import DeviceCollector
from gpumon.model.fields import FIELDS, GROUP_BY_KEY
from gpumon.model.reading import Missing
from gpumon.wire.decoder import Decoder
from tests.e2e.program import GPUMON, ROOT, Collecting, environment
from tests.nvml.emulator import Emulated, Scenario
from tests.support.waiting import HANGS_S

COLLECT = shlex.join([*GPUMON, "collect"])
FOREVER = ("--interval", "3600")
SIGNALLED = 128


def next_sample(collecting):
    """Read on to the next sample."""
    return collecting.until(lambda sample: sample.rows)


# -- the end of the reader, and of its input ---------------------------------------------------
def test_head_leaves_no_process():
    pipeline = f"{COLLECT} --interval 3600 | head -1 | wc -l; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(  # the shell waits for every member of the pipeline
        ["bash", "-c", pipeline], env=environment(), capture_output=True, text=True, timeout=HANGS_S
    )
    assert (done.stdout.split(), done.stderr) == (["1", "0", "0", "0"], "")


def test_it_ends_when_its_reader_closes_the_pipe_while_it_sleeps():
    command = [*GPUMON, "collect", *FOREVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as agent:
        assert agent.stdout.readline().startswith(b'{"wire":"1.')
        assert agent.stdout.readline().startswith(b'{"t":')
        assert agent.poll() is None
        agent.stdout.close()
        assert agent.wait(HANGS_S) == 0


def test_it_ends_when_its_reader_is_killed():
    read, write = os.pipe()
    reader = subprocess.Popen(["cat"], stdin=read, stdout=subprocess.PIPE)
    agent = subprocess.Popen([*GPUMON, "collect", *FOREVER], stdout=write, env=environment())
    os.close(read)
    os.close(write)
    with reader, agent:
        assert reader.stdout.readline().startswith(b'{"wire":"1.')
        assert reader.stdout.readline().startswith(b'{"t":')
        assert agent.poll() is None
        reader.kill()
        assert agent.wait(HANGS_S) == 0


def test_until_eof_it_ends_with_its_input():
    with Collecting("--until-eof", *FOREVER, stdin=subprocess.PIPE) as collecting:
        next_sample(collecting)
        collecting.process.stdin.write(b"ignored\n")
        collecting.process.stdin.flush()
        assert collecting.process.poll() is None
        collecting.process.stdin.close()
        assert collecting.rest() == 0


def test_until_eof_with_no_input_at_all_is_one_sample():
    with Collecting("--until-eof", *FOREVER, stdin=subprocess.DEVNULL) as collecting:
        assert collecting.rest() == 0
        assert len(collecting.samples) == 1


# -- where nobody holds its input --------------------------------------------------------------
def test_without_input_it_runs_on():
    with Collecting("--interval", "0.1", stdin=subprocess.DEVNULL) as collecting:
        for _ in range(5):
            next_sample(collecting)
        assert collecting.process.poll() is None


@pytest.mark.terminal
def test_under_nohup_it_survives_the_end_of_its_terminal(tmp_path):
    """As `nohup gpumon collect > FILE &` in a shell whose terminal goes away."""
    master, terminal = os.openpty()
    out = tmp_path / "samples"
    command = f"exec nohup {COLLECT} --interval 0.1 > {shlex.quote(str(out))} 2>/dev/null"
    with subprocess.Popen(
        ["bash", "-c", command], stdin=terminal, env=environment(), start_new_session=True
    ) as agent:
        os.close(terminal)
        wait_for(lambda: out.exists() and out.read_bytes().count(b"\n") > 2, agent)
        os.close(master)
        agent.send_signal(signal.SIGHUP)
        lines = out.read_bytes().count(b"\n")
        wait_for(lambda: out.read_bytes().count(b"\n") > lines + 3, agent)
        agent.terminate()
        assert agent.wait(HANGS_S) == SIGNALLED + signal.SIGTERM
    assert decoded(out.read_bytes().splitlines())[-1].events[-1].kind == "end"


def test_under_cron_it_runs_on(tmp_path):
    """No terminal, nearly no environment, a file for output."""
    out = tmp_path / "samples"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SHELL": "/bin/sh"}
    command = f"cd {shlex.quote(str(ROOT))} && {COLLECT} --interval 0.1 --count 5"
    with out.open("wb") as file:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE,
            start_new_session=True, timeout=HANGS_S,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    items = decoded(out.read_bytes().splitlines())
    assert len([item for item in items[1:] if item.rows]) == 5


def wait_for(condition, process):
    end = time.monotonic() + HANGS_S
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


def decoded(lines):
    decoder = Decoder()
    return [decoder.line(line) for line in lines]


# -- signals -----------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_a_word(number):
    with Collecting(*FOREVER) as collecting:
        next_sample(collecting)
        collecting.process.send_signal(number)
        assert collecting.rest() == SIGNALLED + number
        assert collecting.ended == f"signal {int(number)}"


def blocked(env):
    """An agent that waits for a reader who does not read; the read end of its pipe."""
    read, write = os.pipe()
    capacity = fcntl.fcntl(read, 1031, 4096)  # F_SETPIPE_SZ: one page holds not even the header
    agent = subprocess.Popen([*GPUMON, "collect"], stdout=write, env=env)
    os.close(write)
    waiting = array("i", [0])

    def is_full():
        fcntl.ioctl(read, termios.FIONREAD, waiting)
        return waiting[0] == capacity

    wait_for(is_full, agent)
    return agent, read


def test_a_signal_ends_it_while_its_reader_does_not_read():
    with Emulated("many") as gpus:
        agent, read = blocked(environment(gpus.env))
        with agent:
            agent.terminate()
            assert agent.wait(HANGS_S) == SIGNALLED + signal.SIGTERM
        os.close(read)


def test_it_ends_when_a_reader_goes_that_does_not_read():
    with Emulated("many") as gpus:
        agent, read = blocked(environment(gpus.env))
        with agent:
            os.close(read)
            assert agent.wait(HANGS_S) == 0


# -- the stream --------------------------------------------------------------------------------
def test_count_is_exact_and_the_end_is_said():
    with Collecting("--count", "3", "--interval", "0.1") as collecting:
        assert collecting.rest() == 0
    assert collecting.header.interval_s == 0.1
    assert collecting.items[0] is collecting.header
    assert len(collecting.samples) == 3
    assert collecting.ended == "the requested number of samples was taken"
    assert all(line.isascii() and line.endswith(b"\n") for line in collecting.lines)


def test_samples_land_on_multiples_of_the_interval():
    """Two agents that began at different moments, as on two nodes, tick together."""
    interval_s = 0.5
    with Collecting("--interval", "0.5", "--count", "100") as one:
        next_sample(one)  # it comes at once
        time.sleep(0.3 * interval_s)
        with Collecting("--interval", "0.5", "--count", "100") as other:
            next_sample(other)
            for collecting in (one, other):
                punctual = 0  # of those in a row: a busy machine is late now and then
                while punctual < 4:
                    after_s = next_sample(collecting).time % interval_s
                    punctual = punctual + 1 if after_s < 0.1 * interval_s else 0


def test_nodes_that_share_the_interval_out_tick_at_seconds_of_their_own():
    names = ("gpu0001", "gpu0004")  # each of an interval of 2 s
    assert {phase_of(name, 2.0) for name in names} == {0.0, 1.0}
    for name in names:
        env = environment(SLURMD_NODENAME=name)
        with Collecting("--interval", "2", "--count", "100", "--spread", env=env) as collecting:
            next_sample(collecting)  # it comes at once
            late_s = 1.0
            while late_s > 0.2:  # a busy machine is late now and then
                late_s = (next_sample(collecting).time - phase_of(name, 2.0)) % 2.0


def test_a_short_interval_reads_each_group_at_its_own_period():
    busy, clocks = [], []

    def enough(sample):
        row = sample.rows.get("device", {}).get(0, {})
        busy.extend([sample] if "busy_percent" in row else [])
        clocks.extend([sample] if "sm_clock_mhz" in row else [])
        return len(clocks) >= 3 and len(busy) >= 5 * len(clocks)

    with Emulated("a100x4") as gpus, Collecting(
        "--interval", "0.1", "--count", "500", env=environment(gpus.env)
    ) as collecting:  # fmt: skip
        collecting.until(enough)
    samples = collecting.samples
    assert len(clocks) <= samples[-1].mono - samples[0].mono + 2  # one a second
    assert all(earlier.mono < later.mono for earlier, later in pairwise(samples))


def test_values_travel_as_the_driver_told_them():
    with Emulated("constant", start_s=20) as gpus:
        with Collecting("--count", "3", env=environment(gpus.env)) as collecting:
            assert collecting.rest() == 0
        truths = gpus.expected()
    rows = {}
    for sample in collecting.samples:
        for key, row in sample.rows["device"].items():
            known = rows.setdefault(key, {})
            known.update(
                {k: v for k, v in row.items() if not isinstance(v, Missing) or k not in known}
            )
    assert [device.uuid for device in collecting.header.devices] == [t["uuid"] for t in truths]
    for device, truth in zip(collecting.header.devices, truths):
        moving = {name for name in FIELDS["device"] if name.endswith(("_per_s", "_j", "_s"))}
        for field in set(truth["readings"]) - moving:
            ideal = truth["readings"][field]
            got = rows[device.key][field]
            if not isinstance(ideal, Missing):
                carried = 10.0 ** -FIELDS["device"][field].decimals
                ideal = pytest.approx(ideal, rel=1e-6, abs=0.501 * carried)
            assert got == ideal, field
    keys = {key for sample in collecting.samples for key in sample.rows.get("usage", ())}
    (pid,) = {key[1] for key in keys if isinstance(key, tuple)}
    assert pid == gpus.pids.get("train", pid)
    events = [e for s in collecting.samples for e in s.events if e.kind == "process"]
    (event,) = [event for event in events if event.pid == pid]  # the others are its ancestors
    assert "train_resnet.py" in event.data["command"]


def test_it_says_what_it_costs():
    with Collecting("--count", "1") as collecting:
        assert collecting.rest() == 0
    rows = collecting.samples[0].rows
    cost = rows["agent"][""]
    assert cost.keys() == {field.name for field in GROUP_BY_KEY["agent.agent"].fields}
    assert 0 < cost["cpu_s"] < HANGS_S
    assert 1 << 20 < cost["rss_bytes"] < 1 << 30
    assert rows["collector"].keys() == {
        "nvml", "processes", "cgroup", "host", "network", "storage",
    }  # fmt: skip
    assert all((row["ok"], row["detail"]) == (1, "") for row in rows["collector"].values())
    assert collecting.header.agent_pid == collecting.process.pid
    assert collecting.header.agent_uid == os.getuid()


# -- devices that are not well -----------------------------------------------------------------
def test_a_device_that_hangs_holds_up_nobody():
    """From now on no power call of GPU 1 returns; two periods later at most it is named."""
    with Emulated("hang") as gpus, Collecting(env=environment(gpus.env)) as collecting:
        collecting.until(lambda sample: all(answers(sample, key) for key in range(4)))
        gpus.override("[system]\nfreeze = 15.1\n")
        named = collecting.until(lambda sample: sample.states)
        for _ in range(2):
            collecting.until(lambda sample: all(answers(sample, key) for key in (0, 2, 3)))
        samples = collecting.samples
    assert named.states[1].state == "hung"
    assert named.states[1].detail == "nvmlDeviceGetFieldValues"
    answered = max(n for n, sample in enumerate(samples) if answers(sample, 1))
    silent, after = samples[answered + 1 :], samples[samples.index(named) :]
    assert samples.index(named) > answered
    for sample in silent[: silent.index(named)]:  # period by period: unanswered, unanswered, named
        assert sample.mono - silent[0].mono < 2 * collecting.header.interval_s
    assert all(sample.states.keys() == {1} for sample in after)
    timeouts = [s.rows["device"][1]["busy_percent"] for s in silent if 1 in s.rows["device"]]
    assert timeouts == [Missing("timeout")]  # said once; from then on it is a state
    xids = [event for sample in samples for event in sample.events if event.kind == "xid"]
    assert [(event.device, event.text) for event in xids] == [(1, "119")]


def answers(sample, key):
    busy = sample.rows.get("device", {}).get(key, {}).get("busy_percent")
    return isinstance(busy, (int, float))


def test_a_device_that_is_lost_keeps_its_place():
    """GPU 2 falls off the bus (Xid 79)."""
    with Emulated("lost") as gpus, Collecting(env=environment(gpus.env)) as collecting:
        collecting.until(lambda sample: answers(sample, 2))
        gpus.override("[system]\nfreeze = 20.1\n")
        told = collecting.until(lambda s: s.states and s.states[2].detail == "Xid 79")
        later = collecting.until(lambda sample: all(answers(sample, key) for key in (0, 1, 3)))
        samples = collecting.samples
    first = next(sample for sample in samples if sample.states)
    assert first.states[2].state == told.states[2].state == "lost"
    assert first.rows["device"][2].keys() == FIELDS["device"].keys()
    assert set(first.rows["device"][2].values()) == {Missing("lost")}
    assert later.states[2].since == first.states[2].since
    assert [device.index for device in collecting.header.devices] == [0, 1, 2, 3]
    assert collecting.header.devices[2].uuid.startswith("GPU-")


def test_a_driver_that_does_not_even_start_costs_only_the_devices():
    with Emulated("hang_init") as gpus, Collecting(
        "--interval", "0.2", "--count", "3", env=environment(gpus.env)
    ) as collecting:  # fmt: skip
        assert collecting.rest() == 0  # though a thread still hangs in the driver
    assert len(collecting.samples) == 3
    assert collecting.header.devices == []
    assert "is not responding" in collecting.header.notes[0]
    for sample in collecting.samples:
        assert "device" not in sample.rows
        assert sample.rows["host"][""]["mem_used_bytes"] > 0


def test_slow_calls_delay_values_but_no_ticks():
    """20 ms a call: the first round takes longer than a tick waits, and comes with the next."""
    with Emulated("slow") as gpus, Collecting(env=environment(gpus.env)) as collecting:
        seen = set()
        while len(seen) < 8:
            sample = collecting.until(lambda sample: sample.rows)
            seen |= {key for key in sample.rows["device"] if answers(sample, key)}
        assert len(collecting.samples) <= 6
    assert not any(sample.states for sample in collecting.samples[3:])


def test_notes_of_a_driver_that_is_not_there_stand_in_the_header():
    with Emulated("mismatch") as gpus, Collecting(
        "--count", "1", env=environment(gpus.env)
    ) as collecting:  # fmt: skip
        assert collecting.rest() == 0
    assert "reboot the node" in collecting.header.notes[0]


# -- the job around it -------------------------------------------------------------------------
JOB = {
    "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_CLUSTER_NAME": "alpha",
    "SLURMD_NODENAME": "gpu07", "SLURM_JOB_CPUS_PER_NODE": "16(x2)", "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "gpu[07-08]", "SLURM_MEM_PER_NODE": "131072",
    "SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "3", "SLURM_STEP_ID": "0",
    "SLURM_JOB_START_TIME": "1795200000", "SLURM_JOB_END_TIME": "1795286400",
}  # fmt: skip


def header(gpus, **variables):
    with Collecting("--count", "1", env=environment(gpus.env, **variables)) as collecting:
        assert collecting.rest() == 0
    return collecting.header


def test_the_job_stands_in_the_header():
    with Emulated("a100x4") as gpus:
        told = header(gpus, **JOB)
    job = told.job
    assert told.node == "gpu07"
    assert (job.id, job.name, job.cluster, job.array) == ("4711", "train", "alpha", "4700_3")
    assert (job.cpus, job.mem_limit_bytes) == (16, 128 << 30)
    assert (job.nodes, job.node_count, job.step) == ("gpu[07-08]", 2, "0")
    assert (job.start, job.end, job.source) == (1795200000, 1795286400, "environment")


@pytest.mark.parametrize(
    ("scenario", "visible", "numbers"),
    [
        ("a100x4", None, [0, 1, 2, 3]),
        ("a100x4", "2,0", [1, None, 0, None]),
        ("a100x4", "{GPU-3},{GPU-1}", [None, 1, None, 0]),
        ("a100x4", "", [None, None, None, None]),
        ("a100x4", "1,-1,2", [None, 0, None, None]),
        # board, its four instances, a whole board
        ("mig", "{MIG-3}", [None, None, None, 0, None, None]),
    ],
)
def test_devices_are_numbered_as_cuda_numbers_them(scenario, visible, numbers):
    with Emulated(scenario) as gpus:
        uuids = [truth["uuid"] for truth in gpus.expected()]
        variables = dict(JOB)
        if visible is not None:
            for place, uuid in enumerate(uuids):
                visible = visible.replace(f"{{{uuid[:3]}-{place}}}", uuid)
            variables["CUDA_VISIBLE_DEVICES"] = visible
        devices = header(gpus, **variables).devices
    assert [device.uuid for device in devices] == uuids
    assert [device.cuda_index for device in devices] == numbers


def test_a_collector_that_fails_is_data_and_hides_no_other():
    """The collector of devices raises in every tick; everything else goes on."""
    program = (
        "from gpumon.collect import stream\nfrom gpumon.collect.nvml import collector\n"
        "def broken(self, tick): raise RuntimeError('oh \\x1b[2J no')\n"
        f"collector.{DeviceCollector.__name__}.collect = broken\n"
        "stream.leave(stream.run(0.1, 2))\n"
    )
    command = [GPUMON[0], "-c", program]
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=HANGS_S)
    assert (done.returncode, done.stderr) == (0, b"")
    samples = [item for item in decoded(done.stdout.splitlines())[1:] if item.rows]
    assert len(samples) == 2
    for sample in samples:
        row = sample.rows["collector"]["nvml"]
        assert (row["ok"], row["detail"]) == (0, "RuntimeError: oh ?[2J no")
        assert sample.rows["host"][""]["mem_used_bytes"] > 0


def test_56_boards_and_56_instances():
    for name, count in (("many", 56), ("mig_8x7", 64)):
        with Emulated(name) as gpus, Collecting(
            "--count", "2", "--interval", "0.5", env=environment(gpus.env)
        ) as collecting:  # fmt: skip
            assert collecting.rest() == 0
        assert len(collecting.header.devices) == count
        keys = {key for sample in collecting.samples for key in sample.rows["device"]}
        assert len(keys) == count


def test_devices_that_come_later_are_told_in_a_new_header():
    scenario = Scenario().gpu("0-1", model="T4", util=40)
    scenario.rule("nvmlInit*", fail=9, to_s=2)
    with Emulated(scenario) as gpus, Collecting(
        "--interval", "0.5", env=environment(gpus.env)
    ) as collecting:  # fmt: skip
        collecting.until(lambda sample: answers(sample, 1) if "device" in sample.rows else False)
    assert collecting.items[0].devices == []
    assert "not loaded" in collecting.items[0].notes[0]
    assert [device.name for device in collecting.header.devices] == ["Tesla T4"] * 2
    assert collecting.header.notes == []
