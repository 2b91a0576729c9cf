"""Ranks that make no more steps, by the probe's readings."""

import pytest

from gpumon.analysis.ledger import ledger_of
from gpumon.analysis.rules import hang
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.model.sample import Process
from gpumon.slurm.job import Job
from tests.analysis.build import GIB, START, device, evidence, node, process, program, track
from tests.analysis.rules.test_gpu_idle import only
from tests.analysis.rules.test_hang import A100, hung

COUNT, STILL = 120, 36
BARRIER = "train.py:120 all_reduce"
SINCE = START + (COUNT - STILL) * 10


def ranks(places=("train.py:131", *[(BARRIER, "ranks")] * 3), live=True, state="CANCELLED",
          since=SINCE, stepped=SINCE, job=None, busy=0, step_us=3e5, **told):  # fmt: skip
    """Ranks that stand at these places, since `since`."""
    probed, devices = [], []
    for n, place in enumerate(places):
        place, waits = (place, "") if isinstance(place, str) else place
        probed.append(
            program(COUNT, pid=4312 + n, rank=3 - n, place=place, waits_for=waits, since=since,
                    stepped=stepped, step_us=[step_us] * (COUNT - STILL) + [None] * STILL, **told)
        )  # fmt: skip
        own = process(COUNT, mem=60 * GIB, pid=4312 + n, framework="torch")
        devices.append(device(COUNT, n, busy_percent=busy, power_w=70, mem_used_bytes=60 * GIB,
                              facts=A100, processes=[own]))  # fmt: skip
    made = Job(raw_id="4711", id="4711", state="RUNNING" if live else state)
    nodes = [node(COUNT, job={"cpu_cores_used": 1, **(job or {})}, programs=probed)]
    return evidence(COUNT, devices, nodes, made, live)


def test_the_rank_that_does_not_come_is_named_with_its_line():
    found = only(hang.suspected_hang(ranks()))
    assert (found.level, found.confidence) == ("critical", "high")
    assert found.actions[0].after == "gpumon stack 4711"
    first = evaluate(ranks()).raised[0]
    assert (first.id, first.waste_gpu_hours) == ("suspected-hang", pytest.approx(4 * STILL / 360))


def test_what_goes_on_does_not_hang():
    end = START + COUNT * 10
    for changes in (
        {"stepped": end - 200},
        {"since": end - 200},  # at another place
        {"step_us": 60e6},
        {"step_us": None},  # one step so far: how long one takes is not known
        {"places": ["train.py:131"]},  # alone, and its CPU use is not known
        {"last": end - 400},  # they have ended
    ):
        assert hang.suspected_hang(ranks(**changes)) == [], changes
    run = ranks()
    run.nodes[0].programs[0].last -= 90  # this one has
    assert hang.suspected_hang(run) == []
    run = ranks()
    run.devices[0].tracks["tensor_active_percent"] = track(20, COUNT)
    assert hang.suspected_hang(run) == []


def test_a_rank_that_others_wait_for_may_compute_or_write():
    facts = Process(5000, "ada", "python train.py", "python", ppid=4312)
    run = ranks()
    run.nodes[0].processes[5000] = (facts, track(90, COUNT))
    found = only(hang.suspected_hang(run))
    assert (found.level, found.confidence) == ("warning", "medium")
    assert ledger_of(run).hang is None
    spins = ranks()
    spins.nodes[0].processes[4314] = (facts._replace(ppid=1), track(100, COUNT))
    assert only(hang.suspected_hang(spins)).level == "critical"
    writes = ranks(job={"write_bytes_per_s": 50e6})
    assert only(hang.suspected_hang(writes)).level == "warning"


def alone(cpu, place="data.py:9 acquire", **changes):
    run = ranks(places=[place], **changes)
    facts = run.nodes[0].programs[0].facts
    run.nodes[0].processes[facts.pid] = (facts, track([90] * (COUNT - STILL) + [cpu] * STILL))
    return run


def test_a_process_alone_hangs_where_it_does_nothing_at_a_line_of_the_user():
    found = only(hang.suspected_hang(alone(1)))
    assert found.level == "warning"
    assert hang.suspected_hang(alone(30)) == []
    assert hang.suspected_hang(alone(1, place="Kernel.dispatch")) == []
    assert hang.suspected_hang(alone(1, job={"read_bytes_per_s": 5e6})) == []
    notebook = alone(1)
    notebook.job = Job(raw_id="1", name="jupyter", state="RUNNING")
    assert hang.suspected_hang(notebook) == []


def test_a_worker_that_hangs_is_named():
    run = ranks(places=[("train.py:88 __next__", "data"), (BARRIER, "ranks")], workers=2,
                worker_places={("data.py:31 open", ""): 10})  # fmt: skip
    assert "rank 3 stands in train.py:88 → __next__; " in only(hang.suspected_hang(run)).title
    assert "; its 2 workers in data.py:31 → open" in only(hang.suspected_hang(run)).title


def test_gpus_that_spin_are_said_with_where_their_ranks_stand():
    run = hung()
    for each in run.devices:
        (own,) = each.processes
        place = ("train.py:131", "") if each.device.index == 3 else (BARRIER, "ranks")
        run.nodes[0].programs.append(
            program(120, pid=own.facts.pid, rank=each.device.index, place=place[0],
                    waits_for=place[1])
        )  # fmt: skip
    found = only(hang.suspected_hang(run))
    assert found.title.endswith(
        "for 5 min; rank 3 stands in train.py:131; ranks 0, 1 and 2 in train.py:120 → all_reduce"
    )
