"""gpumon in programs and notebooks, beside the emulated driver."""

import json
import os
import subprocess
import sys

import nbclient
import nbformat
import pytest

import gpumon
from gpumon.api import recorder
from gpumon.api.sampling import Snapshot
from gpumon.recording import Recording
from tests.nvml.emulator import Emulated
from tests.probe.standins import TORCH, plant
from tests.probe.world import WAIT, World
from tests.support.waiting import HANGS_S


@pytest.fixture
def place(tmp_path):
    world = World(tmp_path)
    plant(world.packages, TORCH)
    return world


def said(place, text, **more):
    """What a program without the probe prints, as JSON."""
    code, out, err = place.run(text, probed=False, GPUMON_STATE=str(place.folder / "state"), **more)
    assert code == 0, err.decode()
    return json.loads(out)


def test_importing_it_loads_nothing_else():
    loaded = "import sys, gpumon; print([m for m in sys.modules if m.startswith('gpumon')])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True)
    assert done.stdout == "['gpumon']\n", done.stderr


def test_it_lists_what_it_has_and_nothing_else():
    public = {"GpumonError", "mark", "recording", "snapshot", "step", "watch"}
    assert public <= set(dir(gpumon))
    assert all(callable(getattr(gpumon, name)) for name in public)
    with pytest.raises(AttributeError, match="module 'gpumon' has no attribute 'snapshoot'"):
        gpumon.snapshoot  # noqa: B018


# -- steps and the probe -------------------------------------------------------------------------
STEPS = "import gpumon\nfor n in range(30):\n    gpumon.step()\n"


def test_steps_and_marks_without_probe_and_recording_do_nothing(place):
    text = STEPS + "gpumon.mark('epoch 3'); gpumon.mark(3)\nimport sys; print([*sys.meta_path][:0])"
    assert said(place, text) == []
    assert place.files() == []


def test_an_empty_mark_is_an_error():
    with pytest.raises(gpumon.GpumonError, match="the mark is empty"):
        gpumon.mark(" ")


def test_steps_of_the_program_count_before_those_of_optimizers(place):
    code, _, err = place.run(
        WAIT
        + STEPS
        + """
import torch
while not torch.optim.optimizer._global_optimizer_post_hooks:
    time.sleep(0.01)
optimizer = torch.optim.optimizer.Optimizer()
for n in range(100):
    optimizer.step()
told(lambda found: found["steps"] == 30)
"""
    )
    assert code == 0, err
    assert place.last()["steps"] == 30


def test_watching_runs_the_probe_in_this_process(place):
    text = f"""
import os
os.environ["GPUMON_PROBE_DIR"] = {str(place.folder / "gpumon-probe-")!r} + str(os.getuid())
{WAIT}
import gpumon, sys, torch
hooks = torch.optim.optimizer._global_optimizer_post_hooks
hooks["mine"] = print
gpumon.watch()
gpumon.watch()
for n in range(30):
    gpumon.step()
steps = told(lambda found: "steps" in found)["steps"]
print(json.dumps([steps, len(hooks), "gpumon_probe" in sys.modules]))
"""
    assert said(place, text) == [30, 2, False]


def test_watching_takes_another_folder_where_a_stranger_planted_the_usual_one(place):
    """And readers find it, whom the process's environment tells nothing of it."""
    (place.folder / f"gpumon-probe-{os.getuid()}").symlink_to(place.told)
    text = """
import gpumon, json, os, sys, time
gpumon.watch()
gpumon.step()
from gpumon.collect.base import Tick
from gpumon.collect.proc.probed import Probed
from gpumon.collect.procfs import ProcFs
files, stat = Probed(lambda visible, order: {}), ProcFs("/proc").stat(os.getpid())
files.find(os.getpid(), stat, os.getuid())
until, tick = time.monotonic() + 100, Tick(time.time(), 0.0)
while not tick.rows and time.monotonic() < until:
    gpumon.step()
    time.sleep(0.1)
    files.put(tick, os.getpid())
print(json.dumps(list(tick.rows)))
"""
    assert said(place, text) == ["program"]
    assert place.files() == []
    (taken,) = place.folder.glob(f"gpumon-probe-{os.getuid()}-*")
    assert taken.stat().st_mode & 0o777 == 0o700


# -- recording -----------------------------------------------------------------------------------
RECORDED = """
import gpumon, json, time
gpumon.watch()
gpumon.step()
with gpumon.recording("run.gpumon", interval_s=0.5) as run:
    gpumon.mark("epoch 3")
    for n in range(400):
        gpumon.step()
        time.sleep(0.01)
try:
    with gpumon.recording("run.gpumon"):
        pass
except gpumon.GpumonError as error:
    print(json.dumps([run.path, run.summary, run._repr_html_(), str(error)]))
"""


@pytest.mark.slow
def test_a_block_is_recorded_with_its_marks_and_steps(place):
    with Emulated("constant") as gpus:
        path, summary, html, error = said(place, RECORDED, **variables(gpus))
    with Recording(path) as file:
        items = list(file.items())
    samples = [item for item in items if hasattr(item, "rows")]
    marks = [event.text for item in samples for event in item.events if event.kind == "mark"]
    steps = [row["steps"] for item in samples for row in item.rows.get("program", {}).values()]
    assert marks == ["epoch 3"]
    assert 200 < steps[-1] <= 401
    assert summary.startswith("gpumon: recorded ")
    assert html.count("<svg") == len(items[0].devices) == 2
    assert html.count("<polyline") == 4
    assert error == f"{path} exists; remove it, or name another file"


def variables(gpus):
    """What a program beside the emulated driver needs in its environment."""
    return {name: gpus.env[name] for name in gpus.env if os.environ.get(name) != gpus.env[name]}


def test_a_recording_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path, "is a folder; name a new file"),
        (tmp_path / "file" / "run.gpumon", "cannot"),
    ):
        with pytest.raises(gpumon.GpumonError, match=why), gpumon.recording(path):
            pytest.fail("it has begun")


@pytest.mark.parametrize("rank", ["LOCAL_RANK", "SLURM_LOCALID"])
def test_only_the_first_rank_on_a_node_records(tmp_path, monkeypatch, rank):
    monkeypatch.setenv(rank, "1")
    with gpumon.recording(tmp_path / "run.gpumon") as run:
        pass
    assert run.summary == "recorded by the first rank on this node"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_error_in_the_block_comes_out_and_ends_the_recording(tmp_path):
    with pytest.raises(ZeroDivisionError), gpumon.recording(tmp_path / "run.gpumon"):
        raise ZeroDivisionError
    with Recording(str(tmp_path / "run.gpumon")) as file:
        assert file.state == "ended"


def test_a_plot_has_a_gap_where_nothing_was_measured():
    axis = recorder.Axis(0.0, 100.0, 3.0)
    line = [(0.0, 0.0), (1.0, 50.0), (50.0, 150.0), (50.1, 50.0)]
    html = recorder._plot("0 <b>", {"busy": line, "memory": []}, axis)
    assert "0 &lt;b&gt;" in html
    assert html.count("<polyline") == 2
    assert 'points="0,60.0 6,30.0"' in html
    assert 'points="300,0.0 301,30.0"' in html


# -- snapshots -----------------------------------------------------------------------------------
def test_a_snapshot_is_what_once_prints(place):
    text = """
import gpumon, json
found = gpumon.snapshot()
frame = found.to_frame()
print(json.dumps([found, list(frame["busy_percent"]), list(frame["name"]), found._repr_html_()]))
"""
    with Emulated("constant") as gpus:
        found, busy, names, html = said(place, text, **variables(gpus))
        once = gpus.run([sys.executable, "-m", "gpumon", "once", "--json"])
    assert found.keys() == json.loads(once.stdout).keys()
    assert busy == [device["busy_percent"] for device in found["devices"]] == [60, 60]
    assert names == ["NVIDIA H200"] * 2
    assert "39.1 / 140 GiB" in html


def test_names_cannot_bring_markup_into_a_notebook():
    device = {
        "index": 0, "name": "<script>x</script>", "busy_percent": None, "mem_used_bytes": None,
        "mem_total_bytes": None, "power_w": 61.2, "temperature_c": 40,
        "missing": {"busy_percent": "lost: <b>", "mem_used_bytes": "<i>"},
    }  # fmt: skip
    html = Snapshot(node="<a>", job={"id": "7"}, devices=[device])._repr_html_()
    assert not {"<script", "<b>", "<i>", "<a>"} & {html[n : n + 7] for n in range(len(html))}
    assert "&lt;a&gt;, job 7" in html
    assert "n/a lost" in html
    assert "61 W" in html
    assert "<script" not in html


def test_a_failed_snapshot_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/none/python")
    with pytest.raises(gpumon.GpumonError, match="cannot start /none/python: No such file"):
        gpumon.snapshot()


def test_a_table_without_pandas_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(gpumon.GpumonError, match="pip install pandas"):
        Snapshot(devices=[]).to_frame()


@pytest.mark.slow
def test_a_notebook_shows_a_table_and_a_plot(tmp_path, monkeypatch):
    cells = (
        "import gpumon\ngpumon.watch()\ngpumon.snapshot()",
        "import time\nwith gpumon.recording('run.gpumon') as run:\n    time.sleep(3)",
        "run",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    with Emulated("constant") as gpus:
        for name, value in {**variables(gpus), "TMPDIR": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        resources = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, timeout=HANGS_S, resources=resources).execute()
    shown = ["".join(out.data["text/html"] for out in cell.outputs) for cell in notebook.cells]
    assert shown[0].startswith("<table>")
    assert shown[0].count("NVIDIA H200") == 2
    assert shown[1] == ""
    assert shown[2].count("<svg") == 2
