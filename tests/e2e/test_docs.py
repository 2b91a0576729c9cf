"""The documents for those who read our formats say what the code does."""

from __future__ import annotations

import json
import re

import pytest

from gpumon.analysis.rules.catalogue import RULES
from gpumon.cli.parser import COMMANDS
from gpumon.model.fields import FIELDS, GROUPS
from gpumon.model.reading import REASONS, Missing
from gpumon.model.sample import FACTS, Header
from gpumon.wire import MAX_DEVICES, MAX_LINE_BYTES, MAX_ROWS, VERSION
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.e2e.program import ROOT, Collecting, environment, gpumon, once
from tests.nvml.emulator import Emulated

WIRE = (ROOT / "docs" / "wire.md").read_text()
JSON = (ROOT / "docs" / "json.md").read_text()
README = (ROOT / "README.md").read_text()


def tables(text):
    """Every table as a list of rows without its head; a cell is its text without back quotes."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        rows = [line.strip().strip("|").split("|") for line in block.splitlines()]
        found.append([[_plain(cell) for cell in row] for row in rows[2:]])
    return found


def _plain(cell):
    return re.sub("^`([^`]*)`$", r"\1", cell.strip())


def section(text, title):
    return re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##? |\Z)", text, re.M | re.S).group(1)


# -- docs/wire.md ---------------------------------------------------------------------------------
def test_the_table_of_groups_is_the_one_of_the_code():
    (table,) = tables(section(WIRE, "Groups"))
    told = []
    for key, every, _, fields in table:
        parts = re.findall(r"`?(\w+)`?(?: ([^,]+))?(?:, |$)", fields)
        told.append((key, 0 if every == "tick" else float(every.removesuffix(" s")), parts))
    assert told == [
        (group.key, group.period_s, [(f.name, "text" if f.text else f.unit) for f in group.fields])
        for group in GROUPS
    ]


def test_the_reasons_and_limits_are_those_of_the_code():
    reasons = [table for table in tables(WIRE) if table[0][:2] == ["u", "unsupported"]]
    assert [(row[1], row[0]) for row in reasons[0]] == list(REASONS.items())
    assert f"version\n{VERSION[0]}.{VERSION[1]}." in WIRE
    rules = section(WIRE, "Rules for readers")
    assert (MAX_LINE_BYTES, MAX_ROWS, MAX_DEVICES) == (1 << 20, 8192, 1024)
    for words in ("1 MiB", f"{MAX_ROWS} rows", f"{MAX_DEVICES} devices"):
        assert words in rules


def example():
    """The header on one line, and the samples."""
    header, samples = re.search(r"```json\n(.*?)```\n\n```jsonl\n(.*?)```", WIRE, re.S).groups()
    return [json.dumps(json.loads(header)), *samples.splitlines()]


def test_the_example_is_read():
    decoder = Decoder()
    header, first, second, third, end = (decoder.line(line) for line in example())
    assert isinstance(header, Header)
    assert [device.uuid[:4] for device in header.devices] == ["GPU-", "GPU-"]
    assert first.rows["device"][0]["busy_percent"] == 97
    assert first.rows["device"][0]["sm_active_percent"] == Missing("unsupported")
    assert first.rows["device"][0]["sm_active_percent"].detail == "needs Hopper or later"
    assert first.rows["usage"][0, 9231]["mem_bytes"] == 30000 * 2**20
    assert first.rows["host"][""]["cpu_percent"] == Missing("measuring")
    assert [event.kind for event in first.events] == ["process"]
    assert set(second.rows["device"][1].values()) == {Missing("lost")}
    assert second.states[1].state == third.states[1].state == "lost"
    assert end.events[0].kind == "end"


def test_the_example_is_what_the_code_writes():
    """The names of the header and of the lines are those of a stream that is written now."""
    told = [json.loads(line) for line in example()]
    with Emulated("lost", start_s=15) as gpus, Collecting(
        env=environment(gpus.env, SLURM_JOB_ID="4711")
    ) as collecting:  # fmt: skip
        collecting.until(lambda sample: sample.states)
    header, first = (json.loads(line) for line in collecting.lines[:2])
    assert header.keys() == told[0].keys()
    assert header["devices"][0].keys() == told[0]["devices"][0].keys()
    assert header["job"].keys() == told[0]["job"].keys()
    assert header["reasons"] == told[0]["reasons"]
    for key, group in told[0]["groups"].items():
        assert header["groups"][key] == group
    assert first.keys() == told[1].keys()
    described = {row[0] for table in tables(section(WIRE, "Header")) for row in table}
    assert set(", ".join(described).replace("`", "").split(", ")) == set(header)
    described = {row[0] for row in tables(section(WIRE, "Sample"))[0]}
    assert set(", ".join(described).replace("`", "").split(", ")) == {
        key for line in collecting.lines[1:] for key in json.loads(line)
    }


def test_the_rules_of_the_document_hold_for_our_own_reader():
    head, *samples = example()
    newer = {**json.loads(head), "wire": "1.9", "weather": []}
    decoder = Decoder()
    assert decoder.line(json.dumps(newer)) == decoder.header
    assert decoder.line("") is None
    assert decoder.line('{"neither":1}') is None
    assert decoder.line(samples[0]).rows
    assert Encoder().header(decoder.header)


# -- docs/json.md ---------------------------------------------------------------------------------
def entries(title):
    """name -> unit, of all tables of a section."""
    rows = [row for table in tables(section(JSON, title)) for row in table]
    assert len({row[0] for row in rows}) == len(rows)
    return {name: unit for name, unit, _ in rows}


def units(entity):
    return {field.name: field.unit for field in FIELDS[entity].values()}


@pytest.fixture(scope="module")
def body():
    with Emulated("mig", freeze_s=30) as gpus:
        return once(gpus, SLURM_JOB_ID="4711", SLURMD_NODENAME="n1")


def test_every_name_of_the_json_is_told(body):
    assert entries("Top").keys() == body.keys()
    for device in body["devices"]:
        assert entries("`devices`").keys() == device.keys()
        for process in device["processes"] or ():
            assert entries("`processes` of a device").keys() == process.keys()
    for title in ("host", "job", "agent"):
        assert entries(f"`{title}`").keys() == body[title].keys()
    for title in ("net", "disk"):
        for row in body[title]:
            assert entries(f"`{title}`").keys() == row.keys()
    assert any(device["processes"] for device in body["devices"])
    assert body["disk"]


def test_every_unit_is_the_one_of_the_code():
    device = entries("`devices`")
    assert set(FACTS) <= device.keys()
    for entity, told in (
        ("device", device), ("usage", entries("`processes` of a device")),
        ("process", entries("`processes` of a device")), ("host", entries("`host`")),
        ("job", entries("`job`")), ("net", entries("`net`")), ("disk", entries("`disk`")),
        ("agent", entries("`agent`")),
    ):  # fmt: skip
        for name, unit in units(entity).items():
            if name != "throttle_mask":  # words in the JSON
                assert told[name] == unit, name
    suffixes = {"_bytes": "B", "_s": "s", "_w": "W", "_mhz": "MHz", "_c": "°C", "_percent": "%"}
    for name in FACTS:
        unit = next((u for suffix, u in suffixes.items() if name.endswith(suffix)), "")
        assert device[name] == unit, name


def test_the_reasons_of_the_json_are_those_of_the_code():
    assert [row[0] for row in tables(JSON)[0]] == list(REASONS)


# -- README.md ------------------------------------------------------------------------------------
def test_the_readme_tells_every_command_with_options_that_it_has():
    rows = {row[0].strip("`"): row for row in tables(section(README, "Commands"))[0]}
    told = {words.split()[1] if " " in words else "" for words in rows}
    assert told == {"", *COMMANDS}
    for words, row in rows.items():
        command = words.split()[1:2]
        accepted = gpumon(*command, "--help").stdout
        for option in re.findall(r"(?<![\w-])--[a-z-]*[a-z]", " ".join(row)):
            assert re.search(rf"{option}\b", accepted), f"{words}: {option}"


def test_the_readme_counts_the_findings():
    assert f"[{len(RULES)} findings]" in README


# -- docs/reliability.md --------------------------------------------------------------------------
def test_every_promise_names_a_test_that_exists():
    promises = (ROOT / "docs" / "reliability.md").read_text()
    for heading in re.findall(r"^## (.+)$", promises, re.M):
        assert re.search(r"`tests/", section(promises, heading)), heading
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promises)
    assert len(named) > 30
    for path, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.M), (path, name)
