"""The simulator itself: the same job every time, physics that adds up, harm that is recognized."""

from random import Random

import pytest

from gpumon.analysis.finding import Change, Gpus
from gpumon.analysis.memory import need
from gpumon.model.sample import Sample
from tests.simulator import memory
from tests.simulator.draw import ANEW, KINDS, NEW, NOT_YET, make, name_of, numbers
from tests.simulator.follow import after, harm
from tests.simulator.job import NODE_CORES, NODE_MEM, Fate, View, peak
from tests.simulator.judge import report_of
from tests.simulator.machine import A40, A100, GIB
from tests.simulator.observe import stream
from tests.simulator.score import score
from tests.simulator.truth import facts, gpu_needs, truth_of

NAMES = [(name_of(kind), 0) for kind, _ in KINDS] + [(name_of(kind), ANEW) for kind, _ in NEW]


@pytest.mark.parametrize(("kind", "first"), NAMES)
def test_every_kind_makes_jobs_that_can_be(kind, first):
    for number in range(first, first + 2):
        job = make(1, number, kind)
        asked, program = job.request, job.program
        assert 0 < job.ended.seconds <= asked.limit_s + 15
        assert 0 < asked.cpus <= NODE_CORES
        assert 0 < asked.mem <= NODE_MEM
        for segment in program.segments:
            assert len(segment.nodes) == asked.nodes == len(program.host)
            for node in segment.nodes:
                assert len(node.gpus) in (0, asked.gpus)
                assert all(0 <= gpu.active <= 1 for gpu in node.gpus)
        known = facts(job)
        assert all(0 <= each <= job.ended.seconds + 1e-6 for each in known.active_s.values())
        assert known.core_s <= asked.cpus * asked.nodes * job.ended.seconds + 1e-6
        assert truth_of(job) == truth_of(make(1, number, kind))


def test_jobs_of_new_kinds_shift_no_others():
    assert numbers(1, 10, every=True) == [*range(5), *range(ANEW, ANEW + 5)]
    known = numbers(1, 50)
    assert known[:40] == list(range(40))
    assert not any(make(1, n).story.partition(": ")[0] in NOT_YET for n in known[40:])
    assert NOT_YET.keys() <= {name_of(kind) for kind, _ in NEW}


def test_a_recording_is_the_same_every_time():
    job = make(3, 3, "mishaps.hang_spinning")
    assert list(stream(job, 0)) == list(stream(make(3, 3, "mishaps.hang_spinning"), 0))
    assert list(stream(job, 0)) != list(stream(make(3, 4, "mishaps.hang_spinning"), 0))


def test_samples_follow_the_view():
    job = make(1, 1, "training.healthy")
    job.view.since, job.view.gaps, job.view.interval_s = 300.0, ((600.0, 900.0),), 5.0
    header, *samples = stream(job, 0)
    seconds = [sample.mono for sample in samples]
    assert header.interval_s == 5.0
    assert min(seconds) == 300.0
    assert not any(600 <= each < 900 for each in seconds)


def test_reservations_show_nothing_of_the_need():
    rng = Random(1)
    for allocator in (memory.tensorflow, memory.jax):
        small, large = (allocator(rng, need * GIB, A100) for need in (2, 50))
        assert small.shown(600) == large.shown(600) > 0.7 * A100.mem_bytes
    held = memory.caching(rng, 40 * GIB, A100)
    assert 40 * GIB < held.shown(1e6) <= 1.36 * 40 * GIB + memory.CONTEXT


def test_a_probe_tells_the_need_within_a_reservation():
    job = make(1, 3, "training.healthy")
    job.view.probe, job.view.interval_s = "told", 60.0
    board = job.request.board
    held = memory.tensorflow(Random(1), 9 * GIB, board)
    job.program.held = [[[held]] * job.request.gpus] * job.request.nodes
    pools = [row for sample in stream(job, 0) if isinstance(sample, Sample)
             for row in sample.rows.get("pool", {}).values()]  # fmt: skip
    assert pools[-1]["peak_bytes"] == 9 * GIB - memory.CONTEXT
    assert set(gpu_needs(job).values()) == {9 * GIB}
    job.view.probe = "silent"
    half = [sample.mono for sample in stream(job, 0) if "pool" in getattr(sample, "rows", {})]
    assert max(half) <= 0.5 * job.ended.seconds
    job.view.probe = ""
    assert not any("pool" in getattr(sample, "rows", {}) for sample in stream(job, 0))


@pytest.mark.parametrize("beside", [0.0, 30.0 * GIB])
def test_a_need_that_is_wrong_is_a_miss(beside, monkeypatch):
    job = make(1, 4, "training.healthy")
    job.view, job.fate = View(60.0, probe="told"), Fate()
    job.program.held = [[[memory.caching(Random(1), 20 * GIB, job.request.board)]]
                        * job.request.gpus] * job.request.nodes  # fmt: skip
    monkeypatch.setattr(need, "_beside", lambda *_: beside)
    monkeypatch.setattr(need, "_MOST_BESIDE_BYTES", 100.0 * GIB)
    found = score(job, report_of(job))
    assert found.needs == found.wrong_needs == job.request.gpus * job.request.nodes


def test_double_precision_is_slow_on_a_board_for_graphics():
    assert A100.slowdown(A40, {"fp64": 1.0}) == pytest.approx(16.7, abs=0.1)
    assert A100.slowdown(A40, {"latency": 1.0}) == 1.0


def lines(*pairs):
    return [Change(option, None, value) for option, value in pairs]


def test_memory_below_the_need_is_harm():
    job = make(1, 2, "cpu.openmp")
    need = peak(job, job.program.seconds)
    job.request.mem_form = "node"
    assert "killed" in harm(job, lines(("--mem", int(need * 0.98))))
    assert harm(job, lines(("--mem", int(need * 1.2)))) == ""


def test_fewer_cores_than_it_uses_is_harm():
    job = make(1, 2, "cpu.openmp")
    job.request.mem_form = "node"
    assert "starved" in harm(job, lines(("--cpus-per-task", job.request.cpus // 2)))
    few = make(1, 2, "cpu.serial_on_many")
    few.request.mem_form = "node"
    assert harm(few, lines(("--cpus-per-task", 1))) == ""


def test_memory_per_core_shrinks_with_the_cores():
    job = make(1, 2, "cpu.serial_on_many")
    job.request.mem_form = "cpu"
    made = after(job.request, lines(("--cpus-per-task", 1)))
    assert made.mem == job.request.mem / job.request.cpus


def test_cores_per_gpu_go_with_the_gpus():
    job = make(1, 2, "training.some_gpus")
    job.request.gpus, job.request.cpus = 4, 32
    fewer = lines(("--gres", Gpus("gpu:a100:", 1)))
    assert after(job.request, fewer).cpus == 32
    job.request.submit_line = "sbatch --gres=gpu:a100:4 --cpus-per-gpu=8 job.sh"
    assert after(job.request, fewer).cpus == 8
    assert after(job.request, [*fewer, *lines(("--cpus-per-gpu", 14))]).cpus == 14


def test_gpus_that_work_are_needed():
    job = make(1, 2, "training.some_gpus")
    job.request.mem_form = "node"
    works = sum(each > 0 for each in facts(job).active_s.values())
    assert harm(job, lines(("--gres", Gpus(f"{job.request.board.gres}:", works)))) == ""
    assert harm(job, lines(("--gres", None))) == "would not start without a GPU"
    fallback = make(1, 2, "training.never")
    fallback.request.mem_form = "node"
    assert harm(fallback, lines(("--gres", None))) == ""


def test_a_shorter_limit_than_the_run_is_harm():
    job = make(1, 2, "training.healthy")
    assert "times out" in harm(job, lines(("--time", int(job.program.seconds))))
    assert harm(job, lines(("--time", int(job.program.seconds * 1.3)))) == ""


def test_a_slower_type_must_fit_the_limit():
    job = make(1, 2, "others.solver")
    job.request.board, job.request.limit_s = A100, 1.5 * job.program.seconds
    job.program.held = [[[memory.direct(Random(1), 10 * GIB)] for _ in range(job.request.gpus)]]
    slower = lines(("--gres", Gpus("gpu:a40:", job.request.gpus)))
    assert "times out" in harm(job, slower)
