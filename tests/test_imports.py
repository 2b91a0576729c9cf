"""What is imported when and by whom: contracts, light commands, the agent's Python."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon import demos, toml
from gpumon.cli.parser import COMMANDS
from gpumon.collect.nvml import locate
from gpumon.tui.postponed import MODULES
from tests.e2e.program import ROOT, environment
from tests.support.waiting import HANGS_S

AGENT = ["collect", "model", "wire", "errors.py", "__init__.py"]
SCREEN = {"textual", "rich", "plotext", "paramiko"}
SLOW = {"asyncio", "ctypes.util", "dataclasses", "subprocess", "psutil"}


def modules_after(code):
    """The names in sys.modules when a new interpreter has run this code."""
    program = (
        "import sys, os, json\n"
        "os._exit = sys.exit  # the agent's way to end: here it must come back\n"
        f"try:\n    {code}\n"
        "except SystemExit as done:\n    assert not done.code, done.code\n"
        "print('MODULES', json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.rpartition("MODULES ")[2]))


def command(*args):
    return f"from gpumon.cli import main; main({list(args)!r})"


# -- light commands ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["completion", "bash"], ["once", "--help"]]
)
def test_help_loads_nearly_nothing(args):
    loaded = modules_after(command(*args))
    assert not loaded & (SCREEN | SLOW | {"ctypes", "pynvml", "threading"})
    loaded -= {"gpumon.collect.limits", "gpumon.collect.guest"}  # small files, of every start
    assert not {name for name in loaded if name.startswith(("gpumon.collect.", "gpumon.tui"))}


@pytest.mark.parametrize(
    ("args", "named"),
    [(["--version"], set()), (["--help"], set()), (["--ascii", "report", "--help"], {"report"})],
)
def test_commands_that_are_not_named_are_not_loaded(args, named):
    loaded = {name.rpartition(".")[2] for name in modules_after(command(*args)) if "cli." in name}
    assert loaded & set(COMMANDS) == named


def test_completion_of_jobs_loads_neither_screen_nor_client():
    loaded = modules_after(command("__complete", "zsh", "known"))
    assert "gpumon.services.completing" in loaded
    assert not loaded & {*SCREEN, "psutil", "pynvml", "asyncio"}
    assert not {name for name in loaded if name.startswith(("gpumon.tui", "gpumon.slurm.client"))}


@pytest.mark.parametrize(
    ("args", "needs"),
    [
        (["once"], set()),
        (["once", "--json"], set()),
        (["collect", "--count", "1"], set()),
        (["doctor"], {"subprocess", "dataclasses", "psutil"}),  # it asks Slurm
        (["doctor", "--json"], {"subprocess", "dataclasses", "psutil"}),
    ],
)
def test_what_runs_on_a_node_loads_no_screen(args, needs):
    loaded = modules_after(command(*args))
    assert {"gpumon.collect.agent", "pynvml"} <= loaded
    assert not loaded & (SCREEN | SLOW) - needs
    assert not {name for name in loaded if name.startswith(("gpumon.tui", "gpumon.sources"))}


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ["runs", "--json"],
        ["jobs", "--json"],
        ["fit", "--params", "7B", "--json"],
        ["compare", demos.path("finetune"), demos.path("finetune"), "--json"],
        ["export", demos.path("finetune"), "--to", "json", "-o", "{tmp}/rows"],
        ["report", demos.path("finetune"), "--format", "json"],
        ["report", demos.path("finetune"), "--format", "csv"],
    ],
    ids=lambda args: " ".join(args[:1] + args[-1:]),
)
def test_what_programs_read_loads_no_screen(args, tmp_path):
    loaded = modules_after(command(*(word.format(tmp=tmp_path) for word in args)))
    assert not loaded & {*SCREEN, "psutil", "pynvml"}
    assert not {name for name in loaded if name.startswith("gpumon.tui")}


def test_the_agent_on_its_own_loads_only_itself():
    loaded = modules_after("from gpumon.collect import agent")
    ours = {name for name in loaded if name.startswith("gpumon.")}
    assert not {
        name for name in ours
        if not name.startswith(("gpumon.collect", "gpumon.model", "gpumon.wire", "gpumon.errors"))
    }  # fmt: skip
    assert not loaded & (SLOW | {"argparse", "pynvml"})


def test_the_package_itself_loads_nothing():
    loaded = modules_after("import gpumon")
    assert [name for name in loaded if name.startswith("gpumon")] == ["gpumon"]


PAINT = """
import sys, json, time
from gpumon.config import Settings
from gpumon.model.view import Status
from gpumon.pipeline.pipeline import Pipeline
from gpumon.tui.app import GpumonApp
import asyncio

class Source:
    name = "none"
    def start(self, sink):
        sink.status("n1", Status("connecting", time.time()))  # samples come after the paint
    def stop(self): pass
    def now(self): return time.time()

GpumonApp._evaluate = lambda self: None  # comes after the first paint, beside everything else

async def paint():
    app = GpumonApp(Pipeline(Source()), Settings())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        app.draw()
        await pilot.pause()
        painted = [str(part.size) for part in app.query("*")]
        assert "Size(width=100" in " ".join(painted), painted
        print("MODULES", json.dumps(sorted(sys.modules)))

asyncio.run(paint())
"""


def test_the_screen_is_painted_without_plots_and_rules(tmp_path):
    (tmp_path / "paint.py").write_text(PAINT)
    done = subprocess.run(
        [sys.executable, tmp_path / "paint.py"], env=environment(LC_ALL="C.UTF-8"),
        capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.rpartition("MODULES ")[2]))
    assert "textual.app" in loaded
    assert not loaded & {"plotext", "paramiko", "pynvml", "gpumon.collect.agent", "ssl"}
    assert not loaded & {*MODULES, "typing_extensions", "textual.widgets._input"}  # of dialogs
    assert "gpumon.analysis.rules.catalogue" not in loaded  # a fifth more to the start
    assert not loaded & {"gpumon.slurm.job", "gpumon.analysis.finding", "gpumon.site", "tomllib"}


def test_the_agent_is_started_before_the_screen_is_imported():
    loaded = modules_after("import gpumon.cli.live, gpumon.services.dashboard")
    assert "gpumon.transport.local" in loaded
    assert not loaded & {*SCREEN, "gpumon.tui.app", "gpumon.collect.nvml.collector"}
    assert not loaded & {"gpumon.slurm.client", "hashlib"}  # there is no job around it


# -- contracts ---------------------------------------------------------------------------------
#: contract -> a line that breaks it, and where
VIOLATIONS = {
    "Nothing imports upwards": ("store/node.py", "import gpumon.sources.base"),
    "The agent travels alone": ("collect/host.py", "import psutil"),
    "The screen knows no connection": ("tui/moment/moment.py", "import gpumon.sources.base"),
    "The light modules stay light": ("export/sample_text.py", "import plotext"),
    "Only tui knows Textual": ("cli/live.py", "import textual"),
    "Only figures know plotext": ("tui/theme.py", "import plotext"),
    "Only transport.ssh knows paramiko": ("transport/srun.py", "import paramiko"),
    "Only prometheus knows urllib3": ("services/prometheus.py", "import urllib3"),
    "Only collect.nvml knows pynvml": ("services/diagnosis.py", "import pynvml"),
    "Few places know psutil": ("cli/doctor.py", "import psutil"),
    "No folder imports in a circle": ("services/jobs.py", "import gpumon.services.attach"),
    "Programs are started in few places": ("cli/once.py", "import subprocess"),
}


def lint(folder):
    program = shutil.which("lint-imports", path=Path(sys.executable).parent) or "lint-imports"
    done = subprocess.run(
        [program, "--no-cache", "--config", str(ROOT / "pyproject.toml")], cwd=folder,
        env=environment(PYTHONPATH=str(folder)), capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_contracts_are_kept():
    code, said = lint(ROOT)
    assert code == 0, said
    assert re.search(rf"Contracts: {len(VIOLATIONS)} kept, 0 broken", said)


def test_every_contract_can_be_broken(tmp_path):
    """Else it would say nothing: a copy of the package with one violation of each."""
    shutil.copytree(ROOT / "gpumon", tmp_path / "gpumon")
    for file, line in VIOLATIONS.values():
        path = tmp_path / "gpumon" / file
        path.write_text(
            path.read_text().replace("import annotations\n", f"import annotations\n{line}\n", 1)
        )
        assert line in path.read_text()
    code, said = lint(tmp_path)
    assert code == 1
    assert set(re.findall(r"^(.*) BROKEN\b", said, re.M)) == set(VIOLATIONS)


def test_the_contracts_name_every_module():
    """A new module has its place among the layers, or the linter would not look at it."""
    settings = toml.read_toml(str(ROOT / "pyproject.toml"))["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in settings["contracts"] if c["type"] == "layers"]
    placed = {name.strip() for layer in layers for name in layer.split("|")}
    found = {
        f"gpumon.{path.stem}"
        for path in (ROOT / "gpumon").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists())
        and path.stem not in ("__init__", "__main__")
    }  # fmt: skip
    assert placed == found


# -- the agent's Python ------------------------------------------------------------------------
def vermin(*paths):
    program = shutil.which("vermin", path=Path(sys.executable).parent) or "vermin"
    command = [program, "--quiet", "--no-tips", "--eval-annotations", "-t=3.9-", "--violations"]
    return subprocess.run([*command, *paths], capture_output=True, text=True, timeout=HANGS_S)


@pytest.mark.slow
def test_the_agent_needs_no_newer_python_than_3_9():
    done = vermin(*(str(ROOT / "gpumon" / name) for name in AGENT))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


@pytest.mark.parametrize(
    "construct",
    [
        "match 1:\n    case 1: pass\n",
        "import tomllib\n",
        "for a, b in zip([1], [2], strict=True): pass\n",
        "try: pass\nexcept* ValueError: pass\n",
    ],
)
def test_a_newer_construct_is_seen(tmp_path, construct):
    file = tmp_path / "newer.py"
    file.write_text(construct)
    assert vermin(str(file)).returncode == 1


def interpreters():
    """Every Python 3.9 that is found here; more than none where the agent's floor is at hand."""
    candidates = [shutil.which("python3.9") or ""]
    candidates += glob.glob(os.path.expanduser("~/.pyenv/versions/3.9*/bin/python"))
    return [path for path in candidates if path and version_of(path).startswith("3.9.")]


def version_of(path):
    code = "import platform; print(platform.python_version())"
    return subprocess.run([path, "-c", code], capture_output=True, text=True).stdout


def test_the_agent_runs_alone_on_the_oldest_python_here(tmp_path):
    """Only what travels, on 3.9 where that is found, else on this Python: one sample."""
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "pynvml.py").write_text(locate.source())
    for name in AGENT:
        source, copy = ROOT / "gpumon" / name, tmp_path / "gpumon" / name
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            shutil.copy(source, copy)
    every_module = "import importlib, pkgutil, gpumon; [importlib.import_module(m.name) for m in "
    every_module += "pkgutil.walk_packages(gpumon.__path__, 'gpumon.') if 'main' not in m.name]"
    for python in interpreters() or [sys.executable]:
        subprocess.run([python, "-c", every_module], cwd=tmp_path, check=True)
        done = subprocess.run(
            [python, "-m", "gpumon.collect", "--count", "1"], cwd=tmp_path,
            env=environment(PYTHONPATH=str(tmp_path)), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=HANGS_S,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines[0]["wire"].startswith("1.")
        assert lines[1]["rows"]["host.host"]
        assert lines[2]["events"][0]["kind"] == "end"
