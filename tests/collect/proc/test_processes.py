import os
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
import pytest

from gpumon.collect.base import Tick
from gpumon.collect.cgroup.job import JobCgroup
from gpumon.collect.cgroup.path import find_job_cgroup
from gpumon.collect.proc import processes
from gpumon.collect.proc.processes import ELSEWHERE, HIDDEN, NOT_HERE, Processes
from gpumon.collect.procfs import TICKS_PER_S
from gpumon.model.fields import FIELDS
from gpumon.model.reading import MEASURING, Missing
from gpumon.model.sample import Process
from tests.collect.trees import SLUID, V2_STEP_CGROUP, plant, plant_process, plant_v2
from tests.support.waiting import until

ME = 1000  # whose agent it is, in trees of files


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def collected(collector, mono, gpu=(), mem=1 << 30, usage=True):
    """One tick in which the devices' collector saw the PIDs `gpu`."""
    tick = Tick(1e9 + mono, mono)
    if usage and gpu:
        for pid in gpu:
            tick.put("usage", (0, pid), {"mem_bytes": mem})
    collector.collect(tick)
    return tick


def rows(tick):
    return tick.rows.get("process", {})


def events(tick, kind="process"):
    return [event for event in tick.events if event.kind == kind]


def facts(tick, pid):
    return next(Process(**event.data) for event in events(tick) if event.pid == pid)


def tree(root, **clock):
    plant(root, {"stat": "cpu  1 1 1 1 1\nbtime 1700000000\n"})
    return Processes(proc=str(root), uid=ME, **clock)


@contextmanager
def running(*argv, env=None):
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    try:
        child.stdout.readline()  # it says when it is ready
        yield child
    finally:
        child.kill()
        child.communicate()


def python(code, *args, env=None):
    return running(sys.executable, "-c", f"print(flush=True)\n{code}", *args, env=env)


# -- real processes ------------------------------------------------------------------------------


def test_a_busy_and_an_idle_process():
    """Against the CPU time that the kernel itself gives, however loaded this machine is."""
    collector = Processes()
    with python("while True: pass") as busy, python("input()") as idle:
        pids = (busy.pid, idle.pid)
        outer = time.monotonic(), _cpu_s(busy.pid)
        first = collected(collector, 0.0, gpu=pids)
        inner = time.monotonic(), _cpu_s(busy.pid)
        assert rows(first)[busy.pid]["cpu_percent"] == MEASURING
        until(lambda: _cpu_s(busy.pid) > inner[1] + 0.5)
        within = time.monotonic() - inner[0], _cpu_s(busy.pid) - inner[1]
        second = collected(collector, 2.0, gpu=pids)
        around = time.monotonic() - outer[0], _cpu_s(busy.pid) - outer[1]
        least, most = 100 * within[1] / around[0], 100 * around[1] / within[0]
        assert 0.9 * least < rows(second)[busy.pid]["cpu_percent"] < 1.1 * most  # of clock ticks
        assert rows(second)[idle.pid]["cpu_percent"] < rows(second)[busy.pid]["cpu_percent"] / 10
        assert rows(second)[busy.pid]["state"] == "R"
        assert rows(second)[idle.pid]["state"] == "S"
        assert set(rows(second)[idle.pid]) == set(FIELDS["process"])
        rss = psutil.Process(idle.pid).memory_info().rss
        assert rows(second)[idle.pid]["rss_bytes"] == pytest.approx(rss, rel=0.2)
        assert events(second) == []


def _cpu_s(pid):
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def test_facts_of_a_real_process():
    env = {"OMP_NUM_THREADS": "3", "SLURM_JOB_ID": "4711", "HF_TOKEN": "s3cr3tvalue"}
    with python("input()", "--token", "s3cr3tvalue", "a\x1b[2Jb", env=env) as child:
        tick = collected(Processes(), 0.0, gpu=[child.pid])
        (event,) = [event for event in events(tick) if event.pid == child.pid]
        process = facts(tick, child.pid)
        created = psutil.Process(child.pid).create_time()
    assert event.time == tick.time
    assert process.user == psutil.Process().username()
    assert process.uid == os.getuid()
    assert process.ppid == os.getpid()
    assert process.own
    assert not process.in_job
    assert process.start == pytest.approx(created, abs=1.5)
    assert process.command.endswith("--token ‹hidden› a?[2Jb")
    assert process.hints == {"OMP_NUM_THREADS": "3"}
    assert process.job == "4711"
    assert "s3cr3t" not in str(tick.events)


def test_ancestors_up_to_the_leader_of_the_session():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with python(code, "print(flush=True); input()") as parent:
        parent.stdout.readline()
        (child,) = psutil.Process(parent.pid).children()
        tick = collected(Processes(), 0.0, gpu=[child.pid])
        expected = {child.pid, parent.pid, os.getpid()}
        assert expected <= set(rows(tick))
        leader = os.getsid(child.pid)  # 0 where it lies outside this PID namespace
        for ancestor in child.parents():
            if ancestor.pid == leader:
                assert leader in rows(tick)
                above = {process.pid for process in ancestor.parents()}
                assert not above & set(rows(tick)) - {1}


def test_a_real_process_that_ends():
    collector = Processes()
    with python("input()") as child:
        collected(collector, 0.0, gpu=[child.pid])
    tick = collected(collector, 2.0, gpu=[child.pid])  # the driver has not noticed yet
    ended = [event.text for event in events(tick, "process-end") if event.pid == child.pid]
    assert ended == ["ended"]
    assert child.pid not in rows(tick)
    again = collected(collector, 4.0, gpu=[child.pid])
    assert child.pid not in [event.pid for event in again.events]


def test_another_users_process_is_shown_without_its_private_files():
    """A child that gave up its rights looks at this process; an ordinary user looks at init."""
    if os.getuid() != 0:
        reading, process = _seen_by_me(1)
    else:
        reading, process = _seen_by_nobody(os.getpid())
    assert reading["read_bytes_per_s"] == "no-permission"
    assert reading["rss_bytes"] > 0
    assert (process["own"], process["uid"]) == (False, 0)
    assert process["command"]
    assert process["hints"] == {}
    assert process["framework"] == ""


def _seen_by_me(pid):
    tick = collected(Processes(), 0.0, gpu=[pid])
    readings = {name: getattr(r, "reason", r) for name, r in rows(tick)[pid].items()}
    return readings, next(event.data for event in events(tick) if event.pid == pid)


def _seen_by_nobody(pid):
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            os.write(write_end, repr(_seen_by_me(pid)).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        seen = pipe.read()
    os.waitpid(child, 0)
    return eval(seen)


def test_the_busiest_where_there_is_neither_a_gpu_process_nor_a_job():
    collector = Processes()
    collected(collector, 0.0)
    ticks = []

    def is_among_them():
        """Unless others were busier for a while."""
        used = _cpu_s(busy.pid)
        until(lambda: _cpu_s(busy.pid) > used + 0.3)
        ticks.append(collected(collector, 6.0 * (len(ticks) + 1)))
        return busy.pid in rows(ticks[-1])

    with python("while True: pass") as busy:
        until(is_among_them)
        assert facts(ticks[-1], busy.pid).own
    assert len(collector._busiest._pids) <= processes.BUSIEST
    assert 2 not in rows(ticks[-1])


# -- trees of files ------------------------------------------------------------------------------


def test_rates_facts_and_start(tmp_path):
    clock = Clock()
    collector = tree(tmp_path, clock=clock)
    plant_process(tmp_path, 42, ticks=(100, 0), start=5000, ppid=0)
    first = collected(collector, 0.0, gpu=[42])
    assert facts(first, 42).start == 1700000000 + 5000 / TICKS_PER_S
    assert facts(first, 42).command == "python train.py"
    assert rows(first)[42]["threads"] == 3
    clock.now = 2.0
    plant_process(tmp_path, 42, ticks=(100 + 3 * TICKS_PER_S, 0), start=5000, ppid=0)
    plant(tmp_path, {"42/io": "rchar: 3000\nwchar: 500\n"})
    second = collected(collector, 2.0, gpu=[42])
    assert rows(second)[42]["cpu_percent"] == pytest.approx(150)
    assert rows(second)[42]["cpu_s"] == pytest.approx(100 / TICKS_PER_S + 3)
    assert rows(second)[42]["read_bytes_per_s"] == 1000
    assert rows(second)[42]["write_bytes_per_s"] == 0
    assert second.events == []


def test_only_every_two_seconds_but_usage_in_any_tick(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 42)
    plant_process(tmp_path, 43)
    collected(collector, 0.0, gpu=[42])
    assert rows(collected(collector, 1.0, gpu=[43])) == {}
    assert set(rows(collected(collector, 2.0))) == {42, 43}


def test_a_recycled_pid_is_another_process(tmp_path):
    clock = Clock()
    collector = tree(tmp_path, clock=clock)
    plant_process(tmp_path, 42, start=100, ticks=(900, 0), cmdline=b"old\0")
    collected(collector, 0.0, gpu=[42])
    clock.now = 2.0
    plant_process(tmp_path, 42, start=200, ticks=(950, 0), cmdline=b"new\0")
    tick = collected(collector, 2.0, gpu=[42])
    assert [event.kind for event in tick.events] == ["process-end", "process"]
    assert facts(tick, 42).command == "new"
    assert rows(tick)[42]["cpu_percent"] == MEASURING


def test_a_process_that_vanishes_while_it_is_read(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 42)
    for name in ("status", "cmdline", "io", "maps"):
        (tmp_path / "42" / name).unlink()
    tick = collected(collector, 0.0, gpu=[42])
    assert rows(tick) == {}
    assert tick.events == []


def nested(root):
    """Make it the /proc of a PID namespace within another."""
    (root / "self" / "ns").mkdir(parents=True)
    (root / "self" / "ns" / "pid").symlink_to("pid:[4026532281]")


@pytest.mark.parametrize(
    ("within", "note", "reason"), [(True, ELSEWHERE, "namespace"), (False, NOT_HERE, "ended")]
)
def test_a_pid_that_is_not_here_keeps_its_row(tmp_path, within, note, reason):
    collector = tree(tmp_path)
    if within:
        nested(tmp_path)
    plant_process(tmp_path, 42)
    tick = collected(collector, 0.0, gpu=[42, 31337])
    assert facts(tick, 31337).note == note
    assert rows(tick)[31337] == dict.fromkeys(FIELDS["process"], Missing(reason))
    assert isinstance(rows(tick)[42]["rss_bytes"], int)
    again = collected(collector, 2.0, gpu=[42, 31337])
    assert again.events == []
    assert 31337 in rows(again)
    later = collected(collector, 12.0, gpu=[42])
    assert [(event.kind, event.pid) for event in later.events] == [("process-end", 31337)]


def test_a_pid_of_an_inner_namespace_is_found_by_nspid(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 4242, inner=17, cmdline=b"inside\0")
    collected(collector, 0.0, gpu=[17])
    tick = collected(collector, 2.0, gpu=[17])
    assert facts(tick, 17).command == "inside"
    assert facts(tick, 17).note == "PID 4242 here"
    assert isinstance(rows(tick)[17]["rss_bytes"], int)


def test_an_ambiguous_inner_pid_is_not_guessed(tmp_path):
    collector = tree(tmp_path)
    nested(tmp_path)
    plant_process(tmp_path, 4242, inner=17)
    plant_process(tmp_path, 4243, inner=17)
    collected(collector, 0.0, gpu=[17])
    assert rows(collected(collector, 2.0, gpu=[17]))[17]["rss_bytes"] == Missing("namespace")


def test_a_process_that_the_system_hides_is_there(monkeypatch):
    """With hidepid a process of others has no directory, but the kernel still knows its PID."""
    collector = Processes(uid=ME)

    def kill(pid, number):
        assert (pid, number) == (4_194_305, 0)
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    tick = collected(collector, 0.0, gpu=[4_194_305])
    assert facts(tick, 4_194_305).note == HIDDEN
    assert rows(tick)[4_194_305]["rss_bytes"] == Missing("no-permission")


def test_foreign_processes(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 42, uid=4_000_000_000)
    plant(tmp_path, {"42/environ": b"OMP_NUM_THREADS=8\0"})
    tick = collected(collector, 0.0, gpu=[42])
    assert facts(tick, 42).user == "4000000000"
    assert not facts(tick, 42).own
    assert facts(tick, 42).hints == {}
    assert rows(tick)[42]["write_bytes_per_s"] == Missing("no-permission")
    assert rows(tick)[42]["rss_bytes"] > 0


def test_a_framework_that_is_loaded_later(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 42, uid=ME)
    first = collected(collector, 0.0, gpu=[42], mem=0)
    assert facts(first, 42).framework == ""
    torch = "7f-80 r-xp 0 08:01 1 /x/libtorch_cuda.so\n"
    plant(tmp_path, {"42/maps": torch})
    assert collected(collector, 2.0, gpu=[42], mem=0).events == []
    second = collected(collector, 4.0, gpu=[42], mem=1 << 20)  # when its memory first appears
    assert facts(second, 42).framework == "torch"
    more = "7f-80 r-xp 0 08:01 1 /x/librmm.so\n7f-80 r-xp 0 08:01 1 /x/libmujoco.so.3\n"
    plant(tmp_path, {"42/maps": torch + more})
    assert collected(collector, 20.0, gpu=[42]).events == []
    third = collected(collector, 36.0, gpu=[42])  # and 30 s later
    assert facts(third, 42).hints["also"] == "rmm"
    assert facts(third, 42).hints["purpose"] == "environments"
    assert collected(collector, 80.0, gpu=[42]).events == []


def test_a_new_title_is_seen(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 42, uid=ME)
    collected(collector, 0.0, gpu=[42])
    plant_process(tmp_path, 42, uid=ME, comm="VLLM::EngineCor", cmdline=b"VLLM::EngineCore\0\0\0")
    tick = collected(collector, 12.0, gpu=[42])
    assert facts(tick, 42).command == "VLLM::EngineCore"
    assert facts(tick, 42).framework == "vllm"


def test_an_overwritten_environment_is_the_parents(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 41, uid=ME, session=41)
    plant_process(tmp_path, 42, uid=ME, ppid=41, session=41)
    plant(tmp_path, {"41/environ": b"OMP_NUM_THREADS=8\0", "42/environ": b"\0" * 90})
    tick = collected(collector, 0.0, gpu=[42])
    assert facts(tick, 42).hints == {"OMP_NUM_THREADS": "8"}


def test_a_zombie_has_no_command(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 42, cmdline=b"", state="Z", comm="gone (x)")
    tick = collected(collector, 0.0, gpu=[42])
    assert facts(tick, 42).command == "[gone (x)]"
    assert rows(tick)[42]["state"] == "Z"


def test_a_device_that_does_not_answer_keeps_its_processes_for_a_while(tmp_path):
    collector = tree(tmp_path)
    plant_process(tmp_path, 42)
    collected(collector, 0.0, gpu=[42])
    assert 42 in rows(collected(collector, 6.0))
    plant_process(tmp_path, 43)
    assert set(rows(collected(collector, 8.0, gpu=[43]))) == {43}


def test_a_long_chain_and_a_circle_of_parents(tmp_path):
    collector = tree(tmp_path)
    for pid in range(100, 200):
        plant_process(tmp_path, pid, ppid=pid + 1, session=5)
    plant_process(tmp_path, 51, ppid=52, session=5)
    plant_process(tmp_path, 52, ppid=51, session=5)
    tick = collected(collector, 0.0, gpu=[100, 51])
    assert {51, 52, 100, 101} <= set(rows(tick))
    assert len(rows(tick)) < 50


# -- the job -------------------------------------------------------------------------------------


def in_job(root, pids):
    mounts = plant_v2(root / "cgroup")
    job = find_job_cgroup(V2_STEP_CGROUP, {})
    procs = f"system.slice/node1_slurmstepd.scope/{SLUID}/step_0/user/task_0/cgroup.procs"
    plant(root / "cgroup", {procs: "".join(f"{pid}\n" for pid in pids)})
    for pid in pids:
        plant_process(root / "proc", pid, uid=ME)
        plant(root / "proc", {f"{pid}/cgroup": V2_STEP_CGROUP})
    return Processes(JobCgroup(job, mounts=mounts), proc=str(root / "proc"), uid=ME)


def test_processes_of_the_job(tmp_path):
    collector = in_job(tmp_path, [4001, 4002])
    plant_process(tmp_path / "proc", 50)
    tick = collected(collector, 0.0, gpu=[50])
    assert set(rows(tick)) == {50, 4001, 4002}
    assert facts(tick, 4001).in_job
    assert facts(tick, 4001).job == SLUID
    assert not facts(tick, 50).in_job
    assert facts(tick, 50).job == ""


def test_the_job_of_a_process_by_the_environment_behind_its_sluid(tmp_path):
    collector = in_job(tmp_path, [4001])
    environ = f"SLURM_JOB_ID=4711\0SLURM_JOB_SLUID={SLUID}\0".encode()
    plant(tmp_path / "proc", {"4001/environ": environ})
    assert facts(collected(collector, 0.0), 4001).job == "4711"


def test_more_processes_than_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "MAX_JOB_PROCESSES", 70)
    collector = in_job(tmp_path, range(1000, 1090))
    first = collected(collector, 0.0)
    (note,) = events(first, "note")
    assert note.text == "The job has 91 processes; 70 of them are shown."
    assert len(rows(first)) == 64  # looked at in one round
    second = collected(collector, 2.0)
    assert len(rows(second)) == 70
    assert events(second, "note") == []
