"""One sample as JSON and as text, from samples made by hand: what a driver does not produce."""

from __future__ import annotations

import json

import pytest

from gpumon.export.sample_json import sample_json
from gpumon.export.sample_text import sample_text
from gpumon.model.fields import FIELDS, THROTTLE_REASONS
from gpumon.model.reading import MEASURING, MIG, Missing
from gpumon.model.sample import FACTS, Device, Event, Header, JobContext, Mig, Sample, State

GPU = Device(0, 0, "GPU-a", "NVIDIA A100", 0, None, {"mem_total_bytes": 80 << 30})
SLICE = Device(1, 0, "MIG-b", "NVIDIA A100 MIG 1g.10gb", 1, Mig("GPU-a", 9, 1, "1g.10gb"))
JOB = JobContext("4711", name="train", cpus=8, mem_limit_bytes=64 << 30)


def header(*devices, **more):
    return Header("gpu01", "b", 1000.0, 10.0, 1.0, "0.1.0", list(devices), **more)


def sample(rows=None, states=None, events=()):
    return Sample(1000.1234, 10.0, rows or {}, states or {}, list(events))


def told(header, sample):
    """As others read it: through JSON."""
    return json.loads(json.dumps(sample_json(header, sample), allow_nan=False))


# -- JSON -----------------------------------------------------------------------------------------
def test_nothing_at_all_is_null_with_its_reason():
    body = told(header(GPU), sample())
    (device,) = body["devices"]
    for name in {*FIELDS["device"], "throttle"} - {"throttle_mask"}:
        assert device[name] is None
        assert device["missing"][name] == "not-sampled"
    assert device["mem_total_bytes"] == 80 << 30
    assert {name for name in FACTS if device[name] is None} == set(FACTS) - {"mem_total_bytes"}
    assert (body["driver"], body["job"], body["net"], body["disk"]) == (None, None, [], [])
    assert body["time"] == 1000.123


@pytest.mark.parametrize(("state", "reason"), [("lost", "lost"), ("hung", "timeout")])
def test_a_device_that_is_not_there_shows_no_old_number(state, reason):
    rows = {"device": {0: {"busy_percent": 97, "processes": 1}}, "usage": {(0, 7): {"type": "C"}}}
    body = told(header(GPU), sample(rows, {0: State(state, 990.0, "Xid 79")}))
    (device,) = body["devices"]
    assert device["state"] == {"state": state, "since": 990.0, "detail": "Xid 79"}
    assert (device["busy_percent"], device["processes"]) == (None, None)
    assert device["missing"]["busy_percent"] == f"{reason}: Xid 79"
    assert (device["index"], device["uuid"]) == (0, "GPU-a")
    assert device["mem_total_bytes"] == 80 << 30  # that does not change
    assert device["missing"]["serial"] == f"{reason}: Xid 79"


def test_a_device_that_only_errs_keeps_what_it_says():
    rows = {"device": {0: {"busy_percent": 97, "power_w": Missing("error", "Unknown Error")}}}
    (device,) = told(header(GPU), sample(rows, {0: State("error", 1.0, "x")}))["devices"]
    assert (device["busy_percent"], device["power_w"]) == (97, None)
    assert device["missing"]["power_w"] == "error: Unknown Error"


def test_processes_nobody_is_not_the_same_as_not_known():
    def processes(count):
        rows = {"device": {0: {"processes": count}}}
        return told(header(GPU), sample(rows))["devices"][0]

    assert processes(0)["processes"] == []
    assert "processes" not in processes(0)["missing"]
    refused = processes(Missing("no-permission"))
    assert (refused["processes"], refused["missing"]["processes"]) == (None, "no-permission")


def test_processes_belong_to_their_device():
    rows = {
        "device": {0: {"processes": 1}, 1: {"processes": 1}},
        "usage": {(0, 7): {"mem_bytes": 5}, (1, 8): {"mem_bytes": MIG}},
        "process": {7: {"cpu_percent": 12.3456}},
    }
    facts = {"pid": 7, "user": "ada", "command": "python a.py", "framework": "torch", "new": 1}
    events = [Event(1.0, "process", pid=7, data=facts), Event(1.0, "process", data={})]
    whole, part = told(header(GPU, SLICE), sample(rows, events=events))["devices"]
    (process,) = whole["processes"]
    assert (process["user"], process["framework"], process["job"]) == ("ada", "torch", None)
    assert (process["mem_bytes"], process["cpu_percent"]) == (5, 12.346)
    (process,) = part["processes"]
    assert (process["pid"], process["command"], process["mem_bytes"]) == (8, None, None)
    assert process["missing"]["mem_bytes"] == "mig"
    assert part["mig"] == {"parent": "GPU-a", "gi": 9, "ci": 1, "profile": "1g.10gb"}


def test_throttle_is_words():
    mask = sum(bit for bit, _ in THROTTLE_REASONS) + (1 << 40)
    rows = {"device": {0: {"throttle_mask": mask}, 1: {"throttle_mask": 0}}}
    some, none = told(header(GPU, SLICE), sample(rows))["devices"]
    assert some["throttle"] == [*(word for _, word in THROTTLE_REASONS), "bit_40"]
    assert none["throttle"] == []
    assert "throttle_mask" not in some


def test_xid_is_the_last_of_this_device():
    events = [
        Event(1.0, "xid", 0, text="13"), Event(2.0, "xid", 0, text="79"),
        Event(3.0, "xid", 1, text="31"), Event(4.0, "xid", None, text="43"),
    ]  # fmt: skip
    devices = told(header(GPU, SLICE, GPU._replace(key=2)), sample(events=events))["devices"]
    assert [device["xid"] for device in devices] == [79, 31, None]


@pytest.mark.parametrize(
    ("reading", "told_bytes", "reason"),
    [
        (32 << 30, 32 << 30, None),
        (Missing("unsupported", "no limit"), 64 << 30, None),  # the environment's
        (None, 64 << 30, None),
    ],
)
def test_the_jobs_memory_limit(reading, told_bytes, reason):
    row = {"mem_used_bytes": 5} if reading is None else {"mem_limit_bytes": reading}
    job = told(header(job=JOB), sample({"job": {"": row}}))["job"]
    assert job["mem_limit_bytes"] == told_bytes
    assert job["missing"].get("mem_limit_bytes") == reason
    unknown = told(header(job=JOB._replace(mem_limit_bytes=None)), sample())["job"]
    assert (unknown["mem_limit_bytes"], unknown["missing"]["mem_limit_bytes"]) == (
        None, "not-sampled",
    )  # fmt: skip


def test_collectors():
    rows = {"collector": {"nvml": {"ok": 0, "ms": 3.5, "detail": "ValueError: x"}, "odd": {}}}
    agent = told(header(), sample(rows))["agent"]
    assert agent["collectors"]["nvml"] == {"ok": False, "ms": 3.5, "detail": "ValueError: x"}
    assert agent["collectors"]["odd"] == {"ok": False, "ms": None, "detail": None}
    assert agent["cpu_s"] is None


# -- text -----------------------------------------------------------------------------------------
def text(header, sample):
    return sample_text(header, sample).splitlines()


def test_text_of_a_job():
    rows = {
        "job": {
            "": {"cpu_cores_used": 3.14, "mem_used_bytes": 31 << 30, "mem_cache_bytes": 9 << 30}
        },
        "host": {"": {"cpu_percent": 12.4, "mem_used_bytes": 1 << 30, "load1": 0.25}},
    }
    facts = {"cpus": 16, "mem_total_bytes": 256 << 30}
    told = header(job=JOB, facts=facts, driver="580.1", cuda="13.0", notes=["Look out."])
    assert text(told, sample(rows)) == [
        "gpu01  driver 580.1  CUDA 13.0",
        "job 4711 train | CPU 3.1 of 8 cores | memory 31 / 64 GiB (+9 GiB cache)",
        "host CPU 12 % of 16 cores | memory 1 / 256 GiB | load 0.2",
        "note: Look out.",
    ]


def test_text_of_what_is_missing():
    rows = {
        "device": {
            0: {"busy_percent": 97, "mem_used_bytes": Missing("unsupported"), "power_w": 611.2},
            1: {"busy_percent": MIG, "mem_used_bytes": 5 << 30, "sm_active_percent": MIG},
        },
        "job": {"": {"cpu_cores_used": MEASURING}},
    }
    told = text(header(GPU, SLICE, job=JobContext("1")), sample(rows))
    assert told[1] == "job 1 | CPU … of ? cores"
    assert told[2] == "host CPU …"
    assert told[3] == "[0]       A100             | busy 97 % | mem n/a | 611 W | …"
    assert told[4] == "[0/gi9.1] A100 MIG 1g.10gb | busy n/a MIG | mem 5 GiB | … | …"


def test_text_of_activity_and_of_what_slows():
    row = {"busy_percent": 90, "sm_active_percent": 51.6, "throttle_mask": 0x44}
    (line,) = text(header(GPU), sample({"device": {0: row}}))[2:]
    assert "busy 90 % | SM 52 % |" in line
    assert line.endswith("| throttled (heat)")  # a power cap alone is normal


def test_text_of_processes_known_and_unknown():
    rows = {
        "device": {0: {"processes": 2}},
        "usage": {(0, 8): {"mem_bytes": 1 << 30}, (0, 7): {"mem_bytes": MIG, "sm_percent": 5}},
        "process": {7: {"cpu_percent": 250.0}},
    }
    events = [Event(1.0, "process", pid=7, data={"user": "ada", "command": "x" * 500})]
    told = text(header(GPU), sample(rows, events=events))[-2:]
    assert told[0].startswith("[0]        7 ada          n/a MIG  SM   5 %  CPU  250 %  xxx")
    assert len(told[0]) < 200
    assert told[1].split() == ["[0]", "8", "?", "1", "GiB", "SM", "…", "CPU", "…", "?"]
