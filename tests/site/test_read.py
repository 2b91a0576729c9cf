"""The site's file and the table that ships: what is read, and one line for every mistake."""

from __future__ import annotations

import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon import site
from gpumon.analysis.memory.classify import tf_reserve_bytes
from gpumon.analysis.rules.catalogue import THRESHOLDS
from gpumon.errors import UsageError
from gpumon.site import Policy, Site
from gpumon.site.read import load_site, shipped_gpus

EXAMPLES = os.path.join(os.path.dirname(site.__file__), "examples")
MIB = 1 << 20


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    monkeypatch.delenv("GPUMON_SITE", raising=False)
    monkeypatch.setattr("gpumon.toml._SITE_FILE", "/nonexistent/site.toml")


# -- the table ---------------------------------------------------------------------------------
NAMES = {
    "NVIDIA A100-SXM4-80GB": "A100-80", "NVIDIA A100 80GB PCIe": "A100-80",
    "NVIDIA A100-SXM4-40GB": "A100-40", "NVIDIA A100-PCIE-40GB": "A100-40",
    "NVIDIA H100 80GB HBM3": "H100-80", "NVIDIA H100 PCIe": "H100-PCIe",
    "NVIDIA H100 NVL": "H100-NVL", "NVIDIA H200": "H200", "NVIDIA H200 NVL": "H200",
    "NVIDIA B200": "B200", "NVIDIA L4": "L4", "NVIDIA L40": "L40", "NVIDIA L40S": "L40S",
    "NVIDIA A40": "A40", "NVIDIA A10": "A10", "NVIDIA A10G": "A10", "NVIDIA A30": "A30",
    "NVIDIA RTX A6000": "A6000", "NVIDIA RTX 6000 Ada Generation": "RTX6000-Ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX-PRO-6000",
    "Tesla V100-SXM2-32GB": "V100-32", "Tesla V100-PCIE-16GB": "V100-16", "Tesla T4": "T4",
    "Tesla P100-PCIE-16GB": "P100-16", "NVIDIA GeForce RTX 3090": "RTX3090",
    "NVIDIA GeForce RTX 2080 Ti": "RTX2080Ti", "NVIDIA GeForce RTX 4090": "RTX4090",
}  # fmt: skip


@pytest.mark.parametrize(("name", "key"), NAMES.items())
def test_every_board_is_known_by_nvmls_name_and_by_no_other(name, key):
    found = [gpu.key for gpu in shipped_gpus() if not gpu.mig_of and re.search(gpu.match, name)]
    assert found == [key]


def test_unknown_names_and_slices():
    known = load_site()
    assert known.gpu_type("NVIDIA Quadro 9000") is None
    slice_ = known.gpu_type("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "1g.10gb")
    assert (slice_.key, slice_.mem_bytes) == ("A100-80/1g.10gb", 9728 * MIB)
    assert known.gpu_type("NVIDIA A100-SXM4-80GB", "9g.99gb") is None
    assert known.gpu_type("NVIDIA Quadro 9000", "1g.10gb") is None


def test_the_table_is_whole():
    gpus = shipped_gpus()
    assert len({gpu.key for gpu in gpus}) == len(gpus)
    whole = {gpu.name for gpu in gpus if not gpu.mig_of}
    for gpu in gpus:
        assert gpu.source
        assert 1 << 30 < gpu.mem_bytes < 1 << 40
        assert gpu.mig_of in ("", *whole)
        assert gpu.mig_of or 2015 < gpu.year < 2030
        assert all(value > 0 for value in gpu.peak.values())
        assert tf_reserve_bytes(gpu.mem_bytes, float(gpu.cc)) < gpu.mem_bytes
        assert ("bf16" in gpu.peak) <= (float(gpu.cc) >= 8)


# -- a site's file -----------------------------------------------------------------------------
def test_without_a_file_there_is_only_the_table():
    assert load_site() == Site(gpus=shipped_gpus())
    assert load_site().offered == shipped_gpus()


def test_uvas_example():
    uva = load_site(os.path.join(EXAMPLES, "uva.toml"))
    assert uva.policy == Policy(3, 5, (), ("interactive",), 3)
    assert uva.mem_default_per_core_bytes == {"interactive": 6 * 10**9, "standard": 9 * 10**9}
    assert [gpu.gres for gpu in uva.offered][:2] == ["gpu:a100", "gpu:a40"]
    (node,) = uva.nodes
    assert (node.gpu, node.gpus, node.cores / node.gpus) == ("A100-80", 8, 16)
    assert node.mem_bytes / node.gpus == 250e9


def test_princetons_example():
    princeton = load_site(os.path.join(EXAMPLES, "princeton.toml"), lambda: THRESHOLDS)
    assert princeton.policy.warn_min == (60, 105)
    assert princeton.thresholds["low-busy.warning_percent"] == 15
    assert {node.cores / node.gpus for node in princeton.nodes} == {12}


def test_the_document_shows_a_file_that_is_read(write):
    docs = os.path.join(os.path.dirname(site.__file__), "..", "..", "docs", "site.md")
    with open(docs, encoding="utf-8") as file:
        text = file.read()
    shown = load_site(write(text.split("```toml\n")[1].split("```")[0]), lambda: THRESHOLDS)
    assert {gpu.key for gpu in shown.offered} == {"A100-80", "A100-80/1g.10gb"}
    assert shown.gpu_type("Mini").bandwidth_gb_per_s == 500
    assert shown.policy.warn_min == (60, 105)


def test_where_the_file_is_looked_for(monkeypatch, write):
    path = write('[site]\nname = "X"\n[settings]\nascii = true')
    monkeypatch.setattr("gpumon.toml._SITE_FILE", path)
    assert load_site().name == "X"
    other = os.path.join(EXAMPLES, "uva.toml")
    monkeypatch.setenv("GPUMON_SITE", other)
    assert load_site().name == "UVA"
    assert load_site(path).name == "X"


def test_a_site_adds_and_replaces_gpus(write):
    found = load_site(write(
        '[[gpu]]\nname="A40"\nmatch="A40$"\ncc="8.6"\nmem_mib=49140\n'
        '[[gpu]]\nname="MINI"\nmatch="MINI"\ncc="9.0"\nmem_mib=1000\ngres="gpu:mini"\nprice=0.5\n'
        '[gres."A40"]\ngres="gpu:a40"\ninfiniband=false\n'
    ))  # fmt: skip
    offered = {gpu.key: gpu for gpu in found.offered}
    assert set(offered) == {"A40", "MINI"}
    assert (offered["A40"].mem_bytes, offered["A40"].infiniband) == (49140 * MIB, False)
    assert offered["MINI"].price == 0.5
    assert len(found.gpus) == len(shipped_gpus()) + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[site", "; correct or remove it"),
        ("\xff\xfe", "; correct or remove it"),
        ("[sites]\n", "sites: unknown; did you mean 'site'?"),
        ("[x]\n", "x: unknown; known: site, policy"),
        ("[policy]\nzero_star_h = 3", "policy.zero_star_h: unknown; did you mean 'zero_start_h'?"),
        (
            "[thresholds]\n'low-busy.warning_percnt' = 20",
            "thresholds.low-busy.warning_percnt: unknown; did you mean 'low-busy.warning_percent'?",
        ),
        ("[thresholds]\n'xyz' = 20", "thresholds.xyz: unknown"),
        ("[policy]\nzero_start_h = '3'", "policy.zero_start_h: must be a number"),
        ("[policy]\nzero_start_h = true", "policy.zero_start_h: must be a number"),
        ("[policy]\nzero_start_h = nan", "policy.zero_start_h: must be a number"),
        ("[policy]\nwarn_min = 5", "policy.warn_min: must be a list"),
        ("policy = 5", "policy: must be a table"),
        ("[node]\ncores = 1", "node: must be tables; write each as [[node]]"),
        ("[[node]]\ncores = 1", "node[0].mem_gb: is missing"),
        ("[[node]]\ncores = 1.5\nmem_gb = 1", "node[0].cores: must be a whole number"),
        ("[[node]]\ngpu='X'\ncores=1\nmem_gb=1", "node[0].gpu: unknown GPU 'X'"),
        ("[gres.X]\ngres='gpu:x'", "gres: unknown GPU 'X'; add it as [[gpu]]"),
        ("[gres.A40]\nname='x'", "gres.A40.name: unknown"),
        ("[[gpu]]\nname='X'\nmatch='('\ncc='8.0'\nmem_mib=1", "gpu[0].match: must be a regular"),
        ("[[gpu]]\nname='X'\nmatch='x'\ncc='eight'\nmem_mib=1", "gpu[0].cc: must be a compute"),
        ("[thresholds]\n'low-busy.warning_percent' = 'x'", "thresholds.low-busy.warning_percent"),
        ("[[gpu]]\nname='X'\nmatch='x'\ncc='8.0'\nmem_mib=0", "gpu[0].mem_mib: must be a whole"),
        (
            "[[gpu]]\nname='X'\nmatch='x'\ncc='8.0'\nmem_mib=1\npeak={bf17=1}",
            "gpu[0].peak.bf17: unknown; did you mean 'bf16'?",
        ),
        ("[links]\nhelp = 5", "links.help: must be text"),
    ],
)
def test_a_mistake_is_one_line_with_the_file_and_the_key(write, tmp_path, text, words):
    path = write("")
    (tmp_path / "site.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as caught:
        load_site(path, lambda: THRESHOLDS)
    assert str(caught.value).startswith(path)
    assert words in str(caught.value)


def test_a_file_that_is_not_there():
    with pytest.raises(UsageError, match=r"^/nowhere/site.toml: No such file"):
        load_site("/nowhere/site.toml")


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("site") / "site.toml"
    path.write_bytes(text.encode("utf-8", "replace"))
    try:
        load_site(str(path))
    except UsageError:
        pass


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(?:a|aa)*b", "(.*)*x", "(a+)(?#c)*b", "(?x)(a+) #c\n+b", "((a)){9}", "(a*)\\1b",
        ".*.*.*.*x", "(a*b*)(c*|d)+", "(?P<n>a*)(?P=n)x",
    ],
)  # fmt: skip
def test_a_pattern_that_may_run_endlessly_is_refused(tmp_path, pattern):
    path = tmp_path / "site.toml"
    match = json.dumps(pattern)
    path.write_text(f'[[gpu]]\nname="X"\nmatch={match}\ncc="8.0"\nmem_mib=1\n')
    with pytest.raises(UsageError, match=r"gpu\[0\].match: must be a regular expression with at"):
        load_site(str(path))


@pytest.mark.parametrize(
    "pattern",
    [r"A100.*80GB|A800.*80GB|H800.*80GB|B.*1|C.*2", r"\(a\)+", "[(+*{)]+x", r"(SXM4|PCIe)?-\d+GB$"],
)
def test_a_pattern_of_names_is_taken(tmp_path, pattern):
    path = tmp_path / "site.toml"
    path.write_text(f"[[gpu]]\nname='X'\nmatch='{pattern}'\ncc='8.0'\nmem_mib=1\n")
    assert load_site(str(path)).gpus[0].match == pattern
