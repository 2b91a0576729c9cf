"""gpumon's cost to a job, as one line."""

import pytest

from gpumon.model.reading import Missing
from gpumon.model.sample import Sample
from gpumon.services.cost import Costs

MIB = 1 << 20


def sample(mono, cpu_s, held_mib=None):
    job = {} if held_mib is None else {"mem_gpumon_bytes": held_mib * MIB}
    return Sample(1e9 + mono, mono, {"agent": {"": {"cpu_s": cpu_s}}, "job": {"": job}})


def line(steps, *samples):
    cost = Costs()
    for node, each in samples:
        cost.add(node, each)
    return cost.line(steps)


TOLD = [
    ([("a", sample(0, 0.5, 10)), ("a", sample(3600, 7.0, 12))], 1,
     "gpumon's cost to this job: 1 step, 12 MiB, 0.2 % of a core"),
    ([("a", sample(0, 0.5, 12)), ("a", sample(5, 0.6, 11))], 0,
     "gpumon's cost to this job: no step, 12 MiB, 0.6 s of CPU time"),
    # ssh that does not lead into the job
    ([("a", sample(0, 0.5, 0)), ("a", sample(200, 1.0, 0))], 0,
     "gpumon's cost to this job: no step, none of its memory, 0.5 % of a core"),
    # the agent was started again
    ([("a", sample(0, 1.0, 10)), ("a", sample(100, 2.0)), ("a", sample(900, 1.0)),
      ("a", sample(1000, 3.0))], 2,
     "gpumon's cost to this job: 2 steps, 10 MiB, 2.5 % of a core"),
    ([("a", sample(0, 0.5, 10)), ("b", sample(7, 0.7, 12))], 1,
     "gpumon's cost to this job: 1 step, 12 MiB, 0.7 s of CPU time on each of 2 nodes, at most"),
]  # fmt: skip


@pytest.mark.parametrize(("samples", "steps", "told"), TOLD)
def test_what_agents_report(samples, steps, told):
    assert line(steps, *samples) == told


def test_without_an_agent_nothing_is_said():
    assert line(1) == ""
    assert line(1, ("a", Sample(1e9, 0.0, {"job": {"": {}}}))) == ""


def test_what_an_agent_could_not_read_costs_nothing():
    unknown = Missing("error", "x")
    rows = {"agent": {"": {"cpu_s": unknown}}, "job": {"": {"mem_gpumon_bytes": unknown}}}
    told = line(0, ("a", Sample(1e9, 0.0, rows)))
    assert told == "gpumon's cost to this job: no step, none of its memory, 0.0 s of CPU time"
