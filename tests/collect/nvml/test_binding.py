"""NVIDIA's binding: found behind another package of its name and behind an old one, or nowhere."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from gpumon.collect.nvml import locate
from gpumon.collect.nvml.binding import nv
from tests.e2e.program import ROOT, environment
from tests.nvml.emulator import Emulated

LACKING = "GPUs cannot be read: nvidia-ml-py 12.570 or later is not installed"


def plant(folder, kind):
    """What an entry of `sys.path` may hold of this name."""
    folder.mkdir()
    text = locate.source()
    if kind in ("package", "both"):  # of the distribution `pynvml` up to 11.5
        (folder / "pynvml").mkdir()
        (folder / "pynvml" / "__init__.py").write_text("raise SystemExit('another package')\n")
    if kind in ("module", "both"):
        (folder / "pynvml.py").write_text(text)
    if kind == "old":
        (folder / "pynvml.py").write_text(text.replace(locate.NEWEST, "NVML_FI_DEV_OLD"))
    if kind in UNUSABLE:
        (folder / "pynvml.py").write_text(UNUSABLE[kind])
    return folder


#: modules of that name, and what importing one raises
UNUSABLE = {
    "SyntaxError": "print 'of Python 2'\n",
    "SystemExit": "raise SystemExit(7)\n",
    "RuntimeError": "raise RuntimeError('not here')\n",
}


def collect(path, *options):
    """Header and first sample of the agent of a Python that finds nothing but what is on `path`."""
    with Emulated("preset:T4x1") as gpus:
        env = environment(gpus.env, PYTHONPATH=":".join(map(str, [ROOT, *path])))
        command = [sys.executable, "-S", *options, "-m", "gpumon.collect", "--count", "1"]
        done = gpus.run(command, env=env)
    assert done.returncode == 0, done.stderr
    header, sample, *_ = map(json.loads, done.stdout.splitlines())
    assert sample["rows"]["host.host"]
    return header, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [
        ["module"],
        ["both"],
        ["package", "module"],
        ["old", "module"],
        ["old", "both"],
        *([kind, "module"] for kind in UNUSABLE),
    ],
)
def test_it_is_found_behind_whatever_hides_it(tmp_path, kinds):
    header, _ = collect([plant(tmp_path / kind, kind) for kind in kinds])
    assert [device["name"] for device in header["devices"]] == ["Tesla T4"]
    assert header["notes"] == []


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("none", "."),
        ("package", " ({folder}/pynvml belongs to another package)."),
        ("old", " ({folder}/pynvml.py is older)."),
        *((kind, f" ({{folder}}/pynvml.py cannot be imported: {kind}).") for kind in UNUSABLE),
    ],
)
def test_where_there_is_none_a_note_says_why_and_the_host_is_read(tmp_path, kind, why):
    folder = plant(tmp_path / kind, kind)
    header, said = collect([folder])
    assert header["devices"] == []
    assert header["notes"] == [LACKING + why.format(folder=folder)]
    assert said == ""


def test_it_is_executed_once_and_brings_no_module_that_the_agent_has_no_use_for():
    program = (
        "import json, sys\n"
        "seen = []\n"
        "def note(event, args):\n"
        "    if event == 'exec' and args[0].co_filename.endswith('pynvml.py'): seen.append(1)\n"
        "sys.addaudithook(note)\n"
        "from gpumon.collect.agent import Agent\n"
        "assert 'pynvml' not in sys.modules\n"
        "agent = Agent(1.0)\n"
        "agent.start(30.0)\n"
        "sample = agent.sample()\n"
        "print(json.dumps([len(seen), list(sample.rows['device']), sorted(sys.modules)]))\n"
    )
    with Emulated("preset:T4x1") as gpus:
        done = gpus.run([sys.executable, "-c", program], env=environment(gpus.env))
    assert done.returncode == 0, done.stderr
    times, devices, modules = json.loads(done.stdout)
    assert (times, devices) == (1, [0])
    assert "pynvml" in modules
    assert not {"ctypes.util", "subprocess", "tempfile", "shutil"} & set(modules)


def test_it_has_every_name_that_is_read():
    """Most are looked up when a device is read: one that is misspelt would show there only."""
    folder = Path(locate.__file__).parent
    texts = [path.read_text() for path in folder.glob("*.py")]
    names = {name for text in texts for name in re.findall(r"\bnv\.([A-Za-z_]\w*)", text)}
    assert len(names) > 80
    assert not [name for name in names if not hasattr(nv, name)]
