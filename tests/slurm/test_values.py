"""Figures, TRES, GRES and ids as Slurm writes them."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import UsageError
from gpumon.slurm import ids, tres, values
from gpumon.slurm.job import ExitCode
from gpumon.slurm.tres import Gres

NOTHING = ["", "Unknown", "None", "NONE", "(null)", "N/A", "None assigned", "nonsense", "-1", "1e3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("44118", 44118),
        ("3068K", 3068 * 1024),
        ("628748K", 628748 * 1024),
        ("36266M", 36266 << 20),
        ("187.50G", 192000 << 20),
        ("1.50G", 1536 << 20),
        ("0.39M", 408944),
        ("2T", 2 << 40),
        ("7?", None),
        ("16?", None),
        ("18446744073709551614", None),
        ("18446744073709551615", None),
        ("4294967294", None),
        ("9" * 30, None),
    ],
)
def test_size(text, expected):
    assert values.size(text) == expected


def test_a_size_without_suffix_takes_the_unit_that_its_field_has():
    assert values.size("2048", "M") == 2 << 30
    assert values.size("2G", "M") == 2 << 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00:00:00", 0),
        ("00:15.057", 15.057),
        ("00:00.012", 0.012),
        ("3-16:30:15", 3 * 86400 + 16 * 3600 + 30 * 60 + 15),
        ("10:00", 600),
        ("1:00:00", 3600),
        ("4-00:00:00", 4 * 86400),
        ("213503982334-14:25:51", None),  # what sstat says of .extern from 25.05 on
        ("UNLIMITED", None),
        ("INVALID", None),
    ],
)
def test_duration(text, expected):
    assert values.duration(text) == expected


@pytest.mark.parametrize("parse", [values.size, values.duration, values.moment, values.count])
@pytest.mark.parametrize("text", NOTHING)
def test_nothing_is_never_0(parse, text):
    assert parse(text) is None


def test_times_are_epoch_or_local():
    assert values.moment("1795202092") == 1795202092
    assert values.moment("2026-11-20T19:14:52", timezone.utc) == 1795202092
    assert values.moment("2026-11-20T19:14:52", timezone(timedelta(hours=1))) == 1795202092 - 3600
    assert values.moment("0") is None
    assert values.moment("4294967294") is None
    assert values.moment("2026-13-40T99:99:99") is None


@pytest.mark.parametrize(
    ("limit", "minutes", "expected"),
    [
        ("00:05:00", "5", (300, "")),
        ("4-00:00:00", "", (345600, "")),
        ("UNLIMITED", "", (None, "UNLIMITED")),
        ("Partition_Limit", "", (None, "Partition_Limit")),
        ("", "", (None, "")),
    ],
)
def test_time_limit(limit, minutes, expected):
    assert values.time_limit(limit, minutes) == expected


@pytest.mark.parametrize(
    ("text", "word", "by", "flags"),
    [
        ("COMPLETED", "COMPLETED", "", ()),
        ("CANCELLED by 1300204", "CANCELLED", "1300204", ()),
        ("RUNNING,LAUNCH_FAILED", "RUNNING", "", ("LAUNCH_FAILED",)),
        ("PENDING,REQUEUED,POWER_UP_NODE", "PENDING", "", ("REQUEUED", "POWER_UP_NODE")),
        ("OUT_OF_ME+", "OUT_OF_ME", "", ()),
        ("EXPEDITING", "EXPEDITING", "", ()),
        ("a\x1b[31mword", "A?[31MWORD", "", ()),
        ("", "", "", ()),
    ],
)
def test_state(text, word, by, flags):
    assert values.state(text) == (word, by, flags)


def test_exit_codes():
    assert values.exit_code("0:125") == ExitCode(0, 125)
    assert values.exit_code("3:0") == ExitCode(3)
    assert values.exit_code("") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4Gn", (4 << 30, "node")),
        ("4000Mc", (4000 << 20, "cpu")),
        ("350M", (350 << 20, "")),
        ("0n", (0, "node")),
        ("0", (0, "")),
        ("", (None, "")),
    ],
)
def test_requested_memory_of_all_ages(text, expected):
    assert values.req_mem(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slurm 24.11.7", (24, 11, 7)),
        ("slurm-wlm 22.05.8", (22, 5, 8)),
        ("26.05", (26, 5, 0)),
        ("no version", None),
    ],
)
def test_version(text, expected):
    assert values.version(text) == expected


@pytest.mark.parametrize("form", ["gres/gpu=2", "gres/gpu:a100=2", "gres/gpu:a100=2,gres/gpu=2"])
def test_both_forms_of_gpu_tres_are_the_same_gpus(form):
    found = tres.resources(f"billing=4,cpu=4,{form},mem=2G,node=1,license/x=3")
    assert found.gpus == 2
    assert found.gpu_types == ({"a100": 2} if "a100" in form else {})
    assert (found.cpus, found.mem_bytes, found.nodes) == (4, 2 << 30, 1)
    assert found.tres["license/x"] == 3


def test_gpus_of_several_types():
    found = tres.resources("gres/gpu:a100=2,gres/gpu:h100=1")
    assert (found.gpus, found.gpu_types) == (3, {"a100": 2, "h100": 1})


def test_gpus_that_are_not_tracked_are_not_0():
    assert tres.resources("cpu=1,mem=1G,node=1").gpus is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:a100:2(IDX:0-1)", [Gres("gpu", "a100", 2)]),
        ("gpu:a100:3(IDX:0,2-3)", [Gres("gpu", "a100", 3)]),
        ("gpu:a100:0(IDX:N/A)", [Gres("gpu", "a100", 0)]),
        ("gpu:4(S:0-1)", [Gres("gpu", "", 4)]),
        ("gpu", [Gres("gpu", "", 1)]),
        ("gres:gpu:1", [Gres("gpu", "", 1)]),
        ("gres:gpu:a100:2", [Gres("gpu", "a100", 2)]),
        ("gres/gpu:a100:2", [Gres("gpu", "a100", 2)]),
        ("gres/gpu=1", [Gres("gpu", "", 1)]),
        ("cpu=2,gres/gpu:h100=4", [Gres("gpu", "h100", 4)]),
        ("cpu=2", []),
        (
            "gpu:a100_1g.10gb:1(IDX:0),shard:a100:3(1/4,2/4)",
            [Gres("gpu", "a100_1g.10gb", 1), Gres("shard", "a100", 3)],
        ),
        ("gpu:1g.10gb:2", [Gres("gpu", "1g.10gb", 2)]),
        ("(null)", []),
    ],
)
def test_gres(text, expected):
    assert tres.parse_gres(text) == expected


def test_usage():
    used = tres.usage(
        "cpu=00:00:05,energy=0,gres/gpumem=60000M,gres/gpuutil=170,mem=216K",
        "cpu=1-00:00:01,mem=1120K,pages=18446744073709551614",
    )
    assert used.total["gres/gpuutil"] == 170
    assert used.total["gres/gpumem"] == 60000 << 20
    assert used.total["cpu"] == 5
    assert used.maximum == {"cpu": 86401, "mem": 1120 * 1024}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123", ids.JobId("123")),
        (" 123_4 ", ids.JobId("123", "4")),
        ("123_[1-9%2]", ids.JobId("123", "1-9%2")),
        ("123_[1,3,7%2]", ids.JobId("123", "1,3,7%2")),
        ("123_[0-10:2]", ids.JobId("123", "0-10:2")),
        ("103+0", ids.JobId("103", "", "0")),
        ("123.0", ids.JobId("123", step="0")),
        ("123.batch", ids.JobId("123", step="batch")),
        ("123_4.extern", ids.JobId("123", "4", step="extern")),
        ("123+1.0+1", ids.JobId("123", "", "1", "0+1")),
        ("123_65534", ids.JobId("123")),
        ("123_4294967294", ids.JobId("123")),
    ],
)
def test_ids(text, expected):
    assert ids.parse(text) == expected
    if "65534" not in text and "4294967294" not in text:
        assert str(expected) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "job", "-1", "12.", "12_", "12_x", "12;ls", "1 2", "12.batch.0", "١٢", "\x1b[31m"]
)
def test_what_is_no_id_is_wrong_usage(text):
    with pytest.raises(UsageError) as caught:
        ids.parse(text)
    assert caught.value.code == 2
    assert str(caught.value).isprintable()


@given(st.text(max_size=60))
def test_no_text_makes_a_parser_fail(text):
    for parse in (
        values.known, values.count, values.size, values.duration, values.moment, values.state,
        values.exit_code, values.req_mem, values.version, values.time_limit, tres.parse_tres,
        tres.resources, tres.parse_gres, tres.gpus_of, tres.parse_indices,
    ):  # fmt: skip
        parse(text)
    tres.usage(text, text)
    try:
        ids.parse(text)
    except UsageError:
        pass


@given(
    st.integers(0, 10**9),
    st.one_of(st.none(), st.integers(0, 10**6)),
    st.one_of(st.none(), st.integers(0, 99)),
    st.sampled_from(["", "batch", "extern", "interactive", "0", "12"]),
)
def test_ids_survive_a_round_trip(job, task, het, step):
    id = ids.JobId(
        str(job),
        "" if task is None or task == 65534 else str(task),
        "" if het is None or task is not None else str(het),
        step,
    )
    assert ids.parse(str(id)) == id
