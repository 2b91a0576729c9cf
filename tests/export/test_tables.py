"""Recordings as tables, read back by what their readers use: csv, pyarrow and DuckDB."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import subprocess
import sys
import tracemalloc
import types
from typing import Any

import pytest

from gpumon import cli, demos
from gpumon.cli import export
from gpumon.export import csv as csv_format
from gpumon.export import jsonl, parquet
from gpumon.export.formats import FORMATS, Format
from gpumon.export.tables import TABLES, rows
from gpumon.model.fields import FIELDS
from gpumon.model.reading import LOST, MIG, Missing, number
from gpumon.model.sample import Device, Event, Header, JobContext, Mig, Sample, State
from gpumon.recording import Recorder, Recording
from tests.e2e.program import GPUMON, ROOT, environment, gpumon

GPU = Device(0, 0, "GPU-a", "NVIDIA A100", 3)
SLICE = Device(1, 0, "MIG-b", "NVIDIA A100 MIG", None, Mig("GPU-a", 9, 1, "1g.10gb"))
AT = 1_795_289_524.635
ISO = "2026-11-21T19:32:04.635Z"
HOSTILE = '=cmd|"calc",\'; DROP\n'


def header(*devices, node="gpu01", job=None):
    return Header(node, "b", AT, 10.0, 1.0, "0.1.0", list(devices), job=job)


def sample(rows, at=AT, states=None, events=()):
    return Sample(at, 10.0, rows, states or {}, list(events))


def record(path, items):
    recorder = Recorder(str(path))
    for item in items:
        (recorder.header if isinstance(item, Header) else recorder.add)(item)
    recorder.close()
    assert not recorder.failed
    return str(path)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The recording that ships with gpumon, in the format that `gpumon record` writes."""

    path = tmp_path_factory.mktemp("recorded") / "demo.gpumon"
    return record(path, Recording(demos.path("finetune")).items())


def exported(*args):
    code = cli.main(["export", *map(str, args)])
    assert code == 0


def sql(query):
    import duckdb  # these libraries take a second to import, which every run would pay for

    duckdb.sql("SET TimeZone = 'UTC'")
    return duckdb.sql(query).fetchall()


# -- rows ------------------------------------------------------------------------------------------
def row_of(items, table):
    (row,) = [row for row in rows(items) if row.table.name == table]
    return dict(zip((column.name for column in row.table.columns), row.values)), row.missing


def test_a_device_row_has_values_reasons_and_nothing_for_what_was_not_due():
    read = {
        "device": {0: {"busy_percent": 0, "power_w": 71.5, "fan_percent": Missing("lost", "x")}}
    }
    values, missing = row_of([header(GPU, job=JobContext("4711")), sample(read)], "device")
    assert (values["busy_percent"], values["power_w"]) == (0, 71.5)
    assert (values["fan_percent"], missing) == (None, {"fan_percent": "lost"})
    assert values["temperature_c"] is None
    assert (values["epoch_s"], values["node"], values["job_id"]) == (AT, "gpu01", "4711")
    assert (values["device_index"], values["cuda_index"], values["device_uuid"]) == (0, 3, "GPU-a")
    assert (values["mig_profile"], values["device_state"]) == (None, None)


def test_a_mig_instance_is_told_from_its_gpu():
    values, missing = row_of(
        [header(GPU, SLICE), sample({"device": {1: {"busy_percent": MIG}}})], "device"
    )
    assert (values["device_uuid"], values["mig_profile"]) == ("MIG-b", "1g.10gb")
    assert missing == {"busy_percent": "mig"}


def test_a_device_that_hangs_is_there_without_values():
    hung = {0: State("hung", AT, "nvmlDeviceGetPowerUsage")}
    values, missing = row_of([header(GPU), sample({"host": {"": {}}}, states=hung)], "device")
    assert (values["device_state"], values["device_uuid"]) == ("hung", "GPU-a")
    assert {values[name] for name in FIELDS["device"]} == {None}
    assert missing == {}
    said_again = sample({}, states=hung, events=[Event(AT, "mark", text="here")])
    assert [row.table.name for row in rows([header(GPU), said_again])] == ["event"]


def test_processes_have_their_names_until_they_end():
    facts = {"user": "ada", "name": "python3", "framework": "torch", "command": "python t.py"}
    read = {"process": {7: {"cpu_percent": 99}}, "usage": {(0, 7): {"mem_bytes": 5}}}
    items = [
        header(GPU),
        sample(read, events=[Event(AT, "process", pid=7, data=facts)]),
        sample(read, at=AT + 2, events=[Event(AT + 2, "process-end", pid=7)]),
        sample(read, at=AT + 4),
    ]
    found = [row for row in rows(items) if row.table.name == "usage"]
    place = [column.name for column in TABLES["usage"].columns].index("user")
    assert [row.values[place] for row in found] == ["ada", "ada", None]
    events = [row.values for row in rows(items) if row.table.name == "event"]
    assert [(values[4], values[8]) for values in events] == [
        ("process", "python t.py"), ("process-end", None),
    ]  # fmt: skip


def test_every_field_has_its_column_once():
    for entity, table in TABLES.items():
        names = [column.name for column in table.columns]
        assert len(names) == len(set(names))
        if entity != "event":
            assert set(FIELDS[entity]) < set(names)
    assert set(export.TABLES) == set(TABLES)


# -- formats ---------------------------------------------------------------------------------------
def written(item_list, table):
    """The table in each format: CSV's records, JSON's objects, Parquet's table."""
    import pyarrow.parquet

    text, lines, binary = io.StringIO(newline=""), io.StringIO(), io.BytesIO()
    writers: list[Any] = [
        csv_format.Writer(TABLES[table], text),
        jsonl.Writer(None, lines),
        parquet.Writer(TABLES[table], binary),
    ]
    for row in rows(item_list):
        if row.table.name == table:
            for writer in writers:
                writer.write(row)
    for writer in writers:
        writer.close()
    records = list(csv.DictReader(io.StringIO(text.getvalue(), newline="")))
    objects = [json.loads(line) for line in lines.getvalue().splitlines()]
    return records, objects, pyarrow.parquet.read_table(binary).to_pylist()


def test_the_formats_say_the_same():
    read = {"device": {0: {"busy_percent": 0, "power_w": 71.5, "fan_percent": LOST}}}
    (record,), (body,), (stored,) = written([header(GPU), sample(read)], "device")
    assert (record["time"], body["time"]) == (ISO, ISO)
    assert stored["time"].isoformat() == "2026-11-21T19:32:04.635000+00:00"
    for each in (body, stored):
        assert (each["busy_percent"], each["power_w"], each["epoch_s"]) == (0, 71.5, AT)
        assert (each["fan_percent"], each["temperature_c"]) == (None, None)
    assert (record["busy_percent"], record["power_w"]) == ("0.0", "71.5")
    assert (record["fan_percent"], record["temperature_c"]) == ("", "")
    assert record["missing"] == stored["missing"] == "fan_percent=lost"
    assert body["missing"] == {"fan_percent": "lost"}
    assert body["table"] == "device"


def test_hostile_names_are_text_and_never_formulas():
    read = {"net": {HOSTILE: {"rx_bytes_per_s": 1}, "-bash": {"rx_bytes_per_s": 2}}}
    records, objects, stored = written([header(), sample(read)], "net")
    assert [record["interface"] for record in records] == [f"'{HOSTILE}", "'-bash"]
    for each in (objects, stored):
        assert [body["interface"] for body in each] == [HOSTILE, "-bash"]


def test_times_and_numbers_that_no_calendar_holds():
    read = {"process": {1 << 63: {"cpu_percent": 1}}}
    (record,), (body,), (stored,) = written([header(), sample(read, at=1e15)], "process")
    assert (record["time"], body["time"], stored["time"]) == ("", None, None)
    assert record["epoch_s"] == "1000000000000000.0"
    assert stored["pid"] is None  # beyond 64 bits


@pytest.mark.slow
def test_memory_does_not_grow_with_the_run(tmp_path):
    def peak(count):
        read = {"host": {"": dict.fromkeys(FIELDS["host"], 1.5)}}
        items = [header(), *(sample(read, at=AT + n) for n in range(100))] * (count // 100)
        tracemalloc.start()
        with open(tmp_path / "host.csv", "w", newline="") as stream:
            writer = csv_format.Writer(TABLES["host"], stream)
            for row in rows(items):
                writer.write(row)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(10_000) < 2 * peak(1_000) + (64 << 10)  # other threads have theirs


#: of a run without the probe
UNPROBED = TABLES.keys() - {"pool", "program"}


# -- the command -----------------------------------------------------------------------------------
@pytest.mark.slow
def test_csv_holds_every_reading_of_the_recording(demo, tmp_path, capsys):
    folder = tmp_path / "out"
    exported(demo, "--to", "csv", "-o", folder)
    assert capsys.readouterr().out.startswith(f"{folder}: rows of device 3,600,")
    assert {path.name for path in folder.iterdir()} == {f"{name}.csv" for name in UNPROBED}
    with open(folder / "device.csv", newline="") as stream:
        found = list(csv.DictReader(stream))
    expected = [
        (item.time, key, readings)
        for item in Recording(demo).items()
        if isinstance(item, Sample)
        for key, readings in item.rows.get("device", {}).items()
    ]
    assert len(found) == len(expected)
    for row, (time, key, readings) in zip(found, expected):
        assert (float(row["epoch_s"]), int(row["device_index"])) == (time, key)
        for name in FIELDS["device"]:
            value = number(readings.get(name))
            assert row[name] == ("" if value is None else str(float(value)))
            assert (f"{name}=" in row["missing"]) == isinstance(readings.get(name), Missing)


def began(demo):
    """When the first sample was taken, epoch s."""
    return next(item.time for item in Recording(demo).items() if isinstance(item, Sample))


@pytest.mark.slow
def test_duckdb_reads_each_format_alike(demo, tmp_path):
    for to in ("csv", "parquet"):
        exported(demo, "--to", to, "-o", tmp_path / to)
    exported(demo, "--to", "json", "--table", "device", "-o", tmp_path / "device.jsonl")
    tables = [
        tmp_path / "csv/device.csv",
        tmp_path / "parquet/device.parquet",
        tmp_path / "device.jsonl",
    ]
    question = (
        "SELECT device_index, count(*), count(temperature_c), round(avg(busy_percent), 6), "
        "max(mem_used_bytes)::BIGINT, epoch(min(time)::TIMESTAMPTZ), any_value(typeof(time)) "
        "FROM '{}' GROUP BY 1 ORDER BY 1"
    )
    answers = [sql(question.format(path)) for path in tables]
    assert len(answers[0]) == 4
    assert [[row[:5] for row in answer] for answer in answers] == [
        [row[:5] for row in answers[0]] for _ in answers
    ]
    begins = [row[5] for answer in answers for row in answer]
    assert begins == [pytest.approx(began(demo), abs=1e-3)] * 12
    for answer in answers[:2]:  # a moment, where JSON may be text
        assert answer[0][6] == "TIMESTAMP WITH TIME ZONE"


@pytest.mark.slow
def test_pandas_and_polars_read_each_format_alike(demo, tmp_path):
    """Moments are moments, numbers are numbers, and what was not read is neither 0 nor a text."""
    import pandas
    import polars

    for to in ("csv", "parquet"):
        exported(demo, "--to", to, "--table", "device", "-o", tmp_path / f"device.{to}")
    exported(demo, "--to", "json", "--table", "device", "-o", tmp_path / "device.jsonl")
    frames = [
        pandas.read_csv(tmp_path / "device.csv", parse_dates=["time"]),
        pandas.read_parquet(tmp_path / "device.parquet"),
        pandas.read_json(tmp_path / "device.jsonl", lines=True, dtype=False),
        polars.read_csv(tmp_path / "device.csv", try_parse_dates=True).to_pandas(),
        polars.read_parquet(tmp_path / "device.parquet").to_pandas(),
        polars.read_ndjson(tmp_path / "device.jsonl").to_pandas(),
    ]
    first, *others = frames
    assert len(first) == 3600
    assert first.time.min().timestamp() == pytest.approx(began(demo), abs=1e-3)
    for other in others:
        assert {*other.columns} - {"table"} == {*first.columns}
        times = pandas.to_datetime(other.time, utc=True).dt.as_unit("ms")
        assert times.equals(first.time.dt.as_unit("ms"))
        for name in ("busy_percent", "temperature_c", "power_w", "energy_j"):
            assert other[name].isna().equals(first[name].isna())
            assert other[name].to_numpy(float) == pytest.approx(
                first[name].to_numpy(float), nan_ok=True
            )


def test_one_table_goes_to_standard_output(demo, capsys):
    exported(demo, "--to", "csv", "--table", "job")
    out = capsys.readouterr().out
    assert out.startswith("time,epoch_s,node,job_id,cpu_cores_used")
    assert len(list(csv.DictReader(io.StringIO(out)))) == 900


@pytest.mark.slow
def test_json_holds_all_tables_in_one_stream(demo, capsys):
    exported(demo, "--to", "json")
    bodies = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {body["table"] for body in bodies} == UNPROBED
    assert all(body["time"].endswith("Z") for body in bodies)


def test_parquet_has_units_and_several_row_groups(demo, tmp_path, monkeypatch):
    import pyarrow.parquet

    monkeypatch.setattr("gpumon.export.parquet._ROWS_PER_GROUP", 1000)
    exported(demo, "--to", "parquet", "--table", "device", "-o", tmp_path / "d.parquet")
    file = pyarrow.parquet.ParquetFile(tmp_path / "d.parquet")
    assert (file.num_row_groups, file.metadata.num_rows) == (4, 3600)
    assert file.schema_arrow.field("power_w").metadata[b"unit"] == b"W"


def test_a_folder_of_several_nodes_is_one_run(tmp_path, capsys):
    read = {"host": {"": {"cpu_percent": 5}}}
    for node in ("gpu02", "gpu01"):
        record(tmp_path / f"{node}.gpumon", [header(node=node), sample(read)])
    exported(tmp_path, "--to", "csv", "--table", "host")
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["node"] for line in lines] == ["gpu01", "gpu02"]


def test_a_job_is_found_by_its_id(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    folder = tmp_path / "jobs" / "local" / "4711"
    folder.mkdir(parents=True)
    job = JobContext("4711")
    record(folder / "a.gpumon", [header(job=job), sample({"host": {"": {"cpu_percent": 5}}})])
    monkeypatch.chdir(tmp_path)
    exported("4711", "--to", "csv")
    assert capsys.readouterr().out == "gpumon-4711: rows of host 1, event 1\n"
    assert (tmp_path / "gpumon-4711" / "host.csv").read_text().count("\n") == 2


def test_a_torn_recording_gives_what_it_has_and_says_so(demo, tmp_path, capsys):
    torn = tmp_path / "torn.gpumon"
    with open(demo, "rb") as whole:
        torn.write_bytes(whole.read()[:20_000])
    os.utime(torn, (0, 0))  # nobody writes there any more
    exported(torn, "--to", "csv", "--table", "host")
    said = capsys.readouterr()
    assert 0 < said.out.count("\n") < 900
    assert "missing" in said.err


# -- what goes wrong -------------------------------------------------------------------------------
def refused(capsys, *args):
    code = cli.main(["export", *map(str, args)])
    said = capsys.readouterr()
    assert said.err.startswith("gpumon: ")
    assert said.err.count("\n") == 1
    return code, said.err


def test_without_pyarrow_one_line_says_what_to_install(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, said = refused(capsys, demo, "--to", "parquet", "-o", tmp_path / "out")
    assert code == 1
    assert "pip install 'gpumon-slurm[parquet]'" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", [(), ("-o", "-")])
def test_one_table_of_parquet_goes_to_standard_output(demo, tmp_path, place):
    whole = tmp_path / "host.parquet"
    assert cli.main(["export", demo, "--to", "parquet", "--table", "host", "-o", str(whole)]) == 0
    done = subprocess.run(
        [*GPUMON, "export", demo, "--to", "parquet", "--table", "host", *place],
        capture_output=True, env=environment(), check=True,
    )  # fmt: skip
    assert done.stdout == whole.read_bytes()


def test_parquet_is_not_for_a_terminal(demo, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, said = refused(capsys, demo, "--to", "parquet", "--table", "host")
    assert (code, "-o" in said) == (2, True)


def test_files_of_another_run_are_not_mixed_in(demo, tmp_path, capsys):
    (tmp_path / "device.csv").write_text("mine")
    code, said = refused(capsys, demo, "--to", "csv", "-o", tmp_path)
    assert (code, "is not empty" in said) == (2, True)
    code, said = refused(capsys, demo, "--to", "csv", "--table", "device", "-o", tmp_path)
    assert (code, f"{tmp_path} is a folder" in said) == (2, True)
    assert (tmp_path / "device.csv").read_text() == "mine"


def test_no_such_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUMON_STATE", str(tmp_path))
    assert refused(capsys, "4712", "--to", "csv")[0] == 4
    assert refused(capsys, tmp_path / "none.gpumon", "--to", "csv")[0] == 4
    (tmp_path / "foreign").write_text("# a file\n")
    assert refused(capsys, tmp_path / "foreign", "--to", "csv")[0] == 2


def test_a_new_format_is_one_module_and_one_line(demo, tmp_path, monkeypatch, capsys):
    """All that `--to tsv` needs: a module that writes rows, and its line among the formats."""
    module = types.ModuleType("gpumon.export.tsv")

    class Writer:
        def __init__(self, table, stream):
            self.stream = stream
            stream.write("\t".join(column.name for column in table.columns) + "\n")

        def write(self, row):
            self.stream.write("\t".join(map(str, row.values)) + "\n")

        def close(self):
            pass

    vars(module)["Writer"] = Writer
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FORMATS, "tsv", Format("tsv", "tsv"))
    assert cli.main(["export", demo, "--to", "tsv", "-o", str(tmp_path / "out")]) == 0
    lines = (tmp_path / "out" / "host.tsv").read_text().splitlines()
    assert lines[0].startswith("time\tepoch_s\tnode\tjob_id\t")
    assert len(lines) > 100
    assert cli.main(["export", demo, "--to", "tsv", "--table", "host"]) == 0
    assert capsys.readouterr().out.endswith("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_what_breaks_off_leaves_no_half_file(demo, tmp_path, monkeypatch, to):
    def breaks(items, problems, tables):
        yield from list(rows(items, problems, tables))[:50]
        raise KeyboardInterrupt

    monkeypatch.setattr("gpumon.export.tables.rows", breaks)
    assert cli.main(["export", demo, "--to", to, "-o", str(tmp_path / "out")]) == 130
    assert list((tmp_path / "out").iterdir()) == []
    one = tmp_path / "one"
    assert cli.main(["export", demo, "--to", to, "--table", "host", "-o", str(one)]) == 130
    assert not one.exists()
    assert not (tmp_path / "one.part").exists()


@pytest.mark.slow
@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_a_full_disk_is_one_line_and_leaves_no_half_file(demo, tmp_path, to):
    """A limit on the size of files is the full disk that a test may make: a write that fails."""
    done = gpumon(
        "export", demo, "--to", to, "-o", str(tmp_path / "out"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("gpumon: ")
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / "out").iterdir()) == []


# -- the document ----------------------------------------------------------------------------------
def test_the_document_names_every_table_with_what_tells_its_rows():
    told = {}
    for line in (ROOT / "docs" / "export.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = cells[0].strip("`")
        if name in TABLES and len(cells) == 3:
            told[name] = re.findall(r"`(\w+)`", cells[2])
    common = ["time", "epoch_s", "node", "job_id"]
    found = {name: [*common, *keys, *FIELDS.get(name, ())] for name, keys in told.items()}
    columns = {name: [each.name for each in table.columns] for name, table in TABLES.items()}
    assert found == columns
