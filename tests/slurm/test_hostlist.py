"""Host lists, beside Slurm's own reading of them."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.slurm.hostlist import MAX_HOSTS, compress, expand
from tests.support.examples import examples
from tests.support.waiting import HANGS_S


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n[001-003]", ["n001", "n002", "n003"]),
        ("n[9-011]", ["n9", "n10", "n11"]),
        ("n[1-2],m3[4-5]x[01-02]", ["n1", "n2", "m34x01", "m34x02", "m35x01", "m35x02"]),
        ("gpu[1-2]a[1-2]", ["gpu1a1", "gpu1a2", "gpu2a1", "gpu2a2"]),
        ("n[3,1-2],n1", ["n3", "n1", "n2", "n1"]),
        ("n[ 1-2]", ["n01", "n02"]),
        ("n1,,n2", ["n1", "n2"]),
        ("c-1.chameleon", ["c-1.chameleon"]),
        ("(null)", []),
        ("None assigned", []),
        ("", []),
    ],
)
def test_expand(text, hosts):
    assert expand(text) == hosts


@pytest.mark.parametrize("text", [
    "n[3-1]", "n[]", "n[1,]", "n[1-99999999]", "n[1", "n]1", "n[a-b]", "x[1-2]y",
    "rack[0-1]n[01-02]-ib", "c-[1-2].chameleon", "a[1-300]b[1-300]", "n[1-40000],m[1-40000]",
])  # fmt: skip
def test_what_is_no_host_list_is_refused_in_a_sentence(text):
    with pytest.raises(ValueError, match="host list"):
        expand(text)


def test_the_largest_list():
    assert len(expand(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["gpu01", "gpu02", "gpu03", "gpu07", "login1"], "gpu[01-03,07],login1"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n1", "n01"], "n[1,01]"),
        (["login"], "login"),
        (["n1"], "n1"),
        ([], ""),
    ],
)
def test_compress(hosts, text):
    assert compress(hosts) == text
    assert expand(text) == hosts


NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,6}[0-9]{0,4}", fullmatch=True).filter(
    lambda name: name not in ("none", "null", "unknown", "invalid")
)
RANGES = st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(1, 3)).map(
    lambda parts: f"{str(parts[0]).zfill(parts[2])}-{str(parts[0] + parts[1]).zfill(parts[2])}"
)
BRACKETS = st.lists(RANGES | st.integers(0, 200).map(str), min_size=1, max_size=3).map(
    lambda ranges: f"[{','.join(ranges)}]"
)
LISTS = st.lists(
    st.tuples(st.from_regex(r"[a-z][a-z-]{0,4}", fullmatch=True), BRACKETS | st.just("")).map(
        "".join
    )
    | NAMES,
    min_size=1,
    max_size=4,
).map(",".join)


@given(st.lists(NAMES, max_size=20))
def test_compress_and_expand_are_inverse(hosts):
    assert expand(compress(hosts)) == hosts


@given(st.text(alphabet="an[]-,09 %()é\n", max_size=30) | st.text(max_size=30))
def test_any_text_is_a_list_or_refused(text):
    with contextlib.suppress(ValueError):
        assert len(expand(text)) <= MAX_HOSTS


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory):
    """Slurm's own reading: names of a host list, None where it refuses it."""
    config = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    config.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
    environment = {**os.environ, "SLURM_CONF": str(config), "LC_ALL": "C"}

    def hostnames(text: str) -> list[str] | None:
        answer = subprocess.run(
            ["scontrol", "show", "hostnames", text],
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )
        assert "slurm.conf" not in answer.stderr, answer.stderr
        return None if answer.returncode or "Invalid" in answer.stderr else answer.stdout.split()

    assert hostnames("n[1-2]") == ["n1", "n2"]
    return hostnames


def test_slurm_reads_generated_lists_alike(scontrol):
    @examples(150)
    @given(LISTS)
    def alike(text):
        assert expand(text) == scontrol(text)

    alike()


@pytest.mark.parametrize("text", ["n[3-1]", "n[]", "n[1,]", "x[1-2]y", "c-[1-2].chameleon"])
def test_slurm_refuses_what_we_refuse(scontrol, text):
    assert scontrol(text) is None


def test_slurm_reads_what_we_compress(scontrol):
    hosts = ["gpu01", "gpu02", "gpu3", "rack1n1", "rack1n2", "login", "n09", "n10"]
    assert scontrol(compress(hosts)) == hosts
