"""Data quality: stopped and unreadable, the wrong job, gaps, and numbers that differ."""

from gpumon.analysis.rules.catalogue import BY_ID
from gpumon.model.reading import Missing
from tests.analysis.build import device
from tests.analysis.rightsize.test_recommend import run

CHECK = BY_ID


def test_a_gpu_that_failed_to_answer_for_a_moment_is_no_problem_and_several_are_one():
    def quiet(*labels, count):
        gpus = []
        for label in labels:
            gpu = device(60, label, busy_percent=[50] * (60 - count) + [None] * count)
            gpu.last["busy_percent"] = Missing("timeout", "")
            gpus.append(gpu)
        return CHECK["data-stale"](run(count=60, devices=gpus))

    assert quiet(0, 1, count=2) == []
    assert len(quiet(0, 1, count=20)) == 1
