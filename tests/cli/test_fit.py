"""`gpumon fit`: the rules of thumb, the table, and what a recording adds."""

from __future__ import annotations

import json
import os
import re

import pytest

from gpumon import cli, demos, site
from gpumon.analysis.rightsize.estimate import DTYPES, MODES, estimate, fit
from gpumon.cli import fit as command
from gpumon.site import GpuType
from gpumon.site.read import shipped_gpus

GIB = 1 << 30
UVA = os.path.join(os.path.dirname(site.__file__), "examples", "uva.toml")
BY_NAME = {gpu.key: gpu for gpu in shipped_gpus()}


def said(capsys, *args):
    code = cli.main(["fit", *args])
    out, err = capsys.readouterr()
    return code, out, err


def rows(capsys, *args):
    code, out, _ = said(capsys, *args, "--json")
    assert code == 0
    body = json.loads(out)
    assert body["version"] == 1
    return body["estimate"], {gpu["name"]: gpu["holds"] for gpu in body["gpus"]}


@pytest.fixture(autouse=True)
def uva(monkeypatch):
    monkeypatch.setenv("GPUMON_SITE", UVA)


@pytest.mark.parametrize(
    ("params", "mode", "gb"),
    [(1.1e9, "infer", 2.64), (3e9, "infer", 7.2), (7e9, "infer", 16.8), (13e9, "infer", 31.2),
     (70e9, "infer", 168), (7e9, "finetune", 56), (13e9, "finetune", 104), (7e9, "lora", 16.8)],
)  # fmt: skip
def test_the_rules_of_thumb(params, mode, gb):
    found = estimate(2 * params, mode)
    assert found.need_bytes - GIB / 2 == pytest.approx(gb * 1e9)


def test_the_smallest_gpu_of_the_sites_table(capsys):
    """1.1 B: any; 3 B: 11 GB; 7 B: 24 GB; 13 B: V100-32, tight; 70 B: several."""
    assert rows(capsys, "--params", "1.1B")[1]["1g.10gb"] == "yes"
    _, three = rows(capsys, "--params", "3B")
    assert (three["1g.10gb"], three["RTX2080Ti"]) == ("yes", "yes")
    _, seven = rows(capsys, "--params", "7B")
    assert (seven["RTX2080Ti"], seven["RTX3090"]) == ("no", "yes")
    _, thirteen = rows(capsys, "--params", "13B")
    assert (thirteen["RTX3090"], thirteen["V100-32"], thirteen["A40"]) == ("no", "tight", "yes")
    assert set(rows(capsys, "--params", "70B")[1].values()) == {"no"}


def test_size_dtype_and_mode(capsys):
    by_bytes, _ = rows(capsys, "--bytes", "14G", "--mode", "finetune")
    assert (by_bytes["weights_bytes"], by_bytes["params"]) == (14 * GIB, None)
    assert by_bytes["need_bytes"] == 4 * 14 * GIB + GIB // 2
    small, _ = rows(capsys, "--params", "7B", "--dtype", "int4")
    assert small["weights_bytes"] == 3.5e9


def test_the_text_names_its_rule_and_what_to_ask_for(capsys):
    code, out, err = said(capsys, "--params", "13B")
    assert (code, err) == (0, "")
    assert "Rule of thumb, not a measurement: UVA workshop" in out
    rows = out[out.index("\nGPU") :].splitlines()[2:]
    fits = [re.findall(r"yes|tight|on \d+ GPUs|no$", row)[0] for row in rows]
    assert fits == sorted(fits, key=["yes", "tight", "on 2 GPUs", "on 4 GPUs", "no"].index)
    assert "Smallest that fits: 1 × A40: #SBATCH --gres=gpu:a40:1" in out
    assert re.search(r"V100-32 +32 GiB +tight, 92 % full +--gres=gpu:v100:1", out)
    assert re.search(r"RTX3090 +24 GiB +on 2 GPUs +--gres=gpu:rtx_3090:2", out)
    assert "no bf16: fp16 has the same size" in next(x for x in rows if "V100" in x)
    assert all(len(line) <= 100 and line == line.rstrip() for line in out.splitlines())


@pytest.mark.slow
def test_a_recording_beside_it(capsys):
    demo = demos.path(demos.names()[0])
    code, out, _ = said(capsys, "--params", "7B", "--recording", demo)
    assert code == 0
    assert "preallocated, so the real need is unknown" in out  # TensorFlow's device has most in use
    body = json.loads(said(capsys, "--params", "7B", "--recording", demo, "--json")[1])
    assert body["measured"]["mem_truth"] == "unknown"
    assert body["measured"]["mem_peak_bytes"] > 70 * GIB


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--params", "x"], "invalid number of parameters"),
        (["--params", "0"], "invalid number of parameters"),
        (["--bytes", "-1"], "argument --bytes"),
        (["--bytes", "x"], "invalid size"),
        ([], "one of the arguments --params --bytes is required"),
        (["--params", "7B", "--bytes", "1G"], "not allowed with"),
        (["--params", "7B", "--mode", "guess"], "invalid choice"),
    ],
)
def test_wrong_usage(capsys, args, words):
    code, out, err = said(capsys, *args)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_an_unknown_recording(capsys):
    code, _, err = said(capsys, "--params", "7B", "--recording", "/nowhere.gpumon")
    assert (code, err.count("\n")) == (4, 1)


def test_slices_do_not_join_and_a_tiny_gpu_holds_nothing():
    need = estimate(140e9, "infer")
    assert fit(need, BY_NAME["A100-80/1g.10gb"], "bf16").together is None
    assert fit(need, BY_NAME["A100-80"], "bf16").together == 3
    assert fit(need, GpuType("mini", "mini", "8.0", 100), "bf16").together is None
    assert "no fp8" in fit(need, BY_NAME["A100-80"], "fp8").note


def test_the_arguments_offer_what_the_estimate_knows():
    assert set(command._DTYPES) == set(DTYPES)
    assert set(command._MODES) == set(MODES)


@pytest.mark.parametrize("section", ["thresholds", "threshold"])
def test_a_misspelt_number_of_the_site_is_wrong_usage(tmp_path, monkeypatch, capsys, section):
    path = tmp_path / "site.toml"
    path.write_text(f'[{section}]\n"low-busy.warning_percnt" = 20\n')
    monkeypatch.setenv("GPUMON_SITE", str(path))
    assert cli.main(["fit", "--params", "7B"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    meant = "low-busy.warning_percent" if section == "thresholds" else "thresholds"
    assert f"unknown; did you mean {meant!r}?" in said


def test_without_a_site_no_request_is_guessed(capsys, monkeypatch):
    monkeypatch.delenv("GPUMON_SITE")
    _, out, _ = said(capsys, "--params", "7B")
    assert "REQUEST" not in out
    assert "sinfo -o %G" in out
