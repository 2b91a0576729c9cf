"""What the probe measured of data loaders, in the findings on GPUs that wait."""

import pytest

from gpumon.analysis.rules import bottleneck, host_stall
from gpumon.analysis.rules.catalogue import evaluate
from tests.analysis.build import GIB, device, evidence, node, process, program
from tests.analysis.rules.test_gpu_idle import only

COUNT = 60
WAIT = ("train.py:88 _BaseDataLoaderIter.__next__", "data")
READ = ("data.py:31 open", "")
REST = ("Queue.get", "work")


def fed(busy=28, wait=72, cpus=16, cores=4.0, pid=4312, live=False, count=COUNT, job=None, **told):
    """A GPU whose process waits so in its data loader."""
    told = {"places": {WAIT: 4, ("train.py:91", ""): 1}, **told}
    probed = [program(count, data_wait_percent=wait, **told)]
    nodes = [node(count, cpus=cpus, job={"cpu_cores_used": cores, **(job or {})}, programs=probed)]
    on_gpu = process(count, mem=GIB, framework="torch", pid=pid)
    return evidence(count, [device(count, busy_percent=busy, processes=[on_gpu])], nodes, live=live)


def test_the_line_is_that_of_the_workers_where_they_are_at_work():
    found = only(bottleneck.input_bound(fed(workers=4, worker_places={READ: 18, REST: 2})))
    _, more = found.actions
    assert "num_workers=8" in more.after


def test_workers_that_rest_are_not_the_cause():
    found = only(bottleneck.input_bound(fed(workers=4, worker_places={READ: 8, REST: 12})))
    assert "(train.py:88)" in found.title
    assert "prefetch_factor" in found.actions[0].text


def test_what_is_at_its_limit_beside_it_names_the_line_to_change():
    found = only(bottleneck.input_bound(fed(cpus=4, cores=3.96, job={"cpu_pressure_percent": 43})))
    assert found.confidence == "high"
    full = only(bottleneck.input_bound(fed(cpus=4, cores=1, job={"io_pressure_percent": 43})))
    assert "TMPDIR" in full.actions[0].after


@pytest.mark.parametrize(
    "told", [{"wait": 29}, {"busy": 71}, {"busy": 0.5}, {"wait": None}], ids=str
)
def test_near_misses(told):
    assert bottleneck.input_bound(fed(**told)) == []


def test_a_gpu_that_is_hardly_busy_waits_too_where_that_is_measured():
    assert only(bottleneck.input_bound(fed(busy=4)))


def test_it_is_the_one_finding_about_the_gpu():
    raised = [each.id for each in evaluate(fed()).raised]
    assert "input-bound" in raised
    assert not {"low-busy", "host-stall"} & set(raised)


def test_a_thread_that_holds_the_gpu_up_is_named_with_its_line():
    places = {("train.py:57 tokenize", ""): 4, ("train.py:91", ""): 1}
    run = fed(wait=0, cores=1.0, places=places, rank=2)
    facts = run.nodes[0].programs[0].facts
    run.nodes[0].processes[4312] = (facts, device(COUNT, busy_percent=100).track("busy_percent"))
    found = only(host_stall.host_stall(run))
    assert "rank 2 stands in train.py:57 → tokenize 80 % of the time" in found.evidence
