"""What a recording's device needed, beside an estimate."""

from gpumon.analysis.rightsize.estimate import estimate
from gpumon.report.fit import fit_text, measured_in
from tests.analysis.build import GIB, device, evidence, held, pooled


def reserved():
    return held(lambda time: (78 if time >= 4 else 0.4) * GIB, 600, framework="tf")


def found_in(process):
    made = device(60, mem_used_bytes=78 * GIB, processes=[process])
    return measured_in(evidence(60, [made]))


def test_a_measured_need_stands_in_place_of_the_reservation():
    found = found_in(pooled(reserved(), 9.0 * GIB))
    assert (found.mem_truth, round(found.mem_peak_bytes / GIB, 1)) == ("measured", 9.6)
    text = fit_text(estimate(14e9, "infer"), [], found)
    assert "9.6 GiB on gpu01:0" in text
    assert "measured inside the program: the real need" in text
    assert found_in(reserved()).mem_truth == "unknown"
