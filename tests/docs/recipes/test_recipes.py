"""The recipes of CONTRIBUTING.md, each followed on a copy of the tree."""

from __future__ import annotations

import json
import sys

import pytest

from screenshots.terminal_png import Session
from tests.docs.recipes.tree import Tree, follows
from tests.e2e.program import environment
from tests.support.waiting import HANGS_S

pytestmark = pytest.mark.slow


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_a_reading(tree):
    """The files (inodes) that a file system can still take."""
    tree.insert(
        "gpumon/model/fields.py",
        '        Field("free_bytes", "B", _BYTES, kept=JUDGED),\n',
        '        Field("files_free", "", _COUNT),\n',
    )
    storage = "gpumon/collect/storage.py"
    tree.insert(storage, "    free_bytes: int\n", "    files_free: int = 0\n")
    tree.insert(storage, "answer.f_bavail * answer.f_frsize,\n", "        answer.f_favail,\n")
    tree.insert(storage, '"total_bytes", "used_bytes", "free_bytes"', ', "files_free"')
    tree.insert(
        "gpumon/tui/parts/host.py",
        "        yield str(key), (text + share, role)\n",
        '        files = node.latest("disk", key, "files_free", moment.now)\n'
        '        yield f"{key} files", shown(files, lambda value: f"{value:.0f}")\n',
    )
    bytes_row = "| `free_bytes` | B | that a user may still write |\n"
    tree.insert("docs/json.md", bytes_row, "| `files_free` | | |\n")
    tree.insert("docs/wire.md", "`used_bytes` B, `free_bytes` B", ", `files_free`")
    follows(tree, "Add a reading", most=4)

    disks = json.loads(tree.run("gpumon", "once", "--json"))["disk"]
    assert disks
    assert all(disk["files_free"] > 0 for disk in disks)
    tree.check("tests/e2e/test_docs.py", "tests/collect/test_storage.py")


_RULE = '''\
"""GPUs that stay hot."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.analysis.rules.needs import gpus
from gpumon.analysis.rules.phrasing import finding, gpus_text, unread
from gpumon.analysis.rules.rule import Answers, rule
from gpumon.analysis.rundata import RunData
from gpumon.analysis.signals import job_devices
from gpumon.analysis.thresholds import Count


class GpuHot(NamedTuple):
    celsius: Count = 90


@rule(
    "gpu-hot",
    title="a GPU above {celsius} °C on average",
    why="A hot GPU lowers its clock.",
    remedy="report the node",
    needs=(gpus,),
)
def gpu_hot(run: RunData, t: GpuHot) -> Answers:
    """Guards: a device without temperature is not evaluable. Source: proposed."""
    for device in job_devices(run):
        mean = device.track("temperature_c").average()
        if mean is None:
            yield unread(device, "temperature_c")
        elif mean > t.celsius:
            title = f"{gpus_text(run, [device])} was at {mean:.0f} °C on average"
            yield finding(run, "warning", title, title, devices=[device])
'''
_ITS_TEST = """\
from gpumon.analysis.finding import NotEvaluable
from gpumon.analysis.rules.catalogue import BY_ID, evaluate
from gpumon.site import Site
from tests.analysis.build import device, evidence


def outcome(celsius, **more):
    return BY_ID["gpu-hot"](evidence(60, [device(60, temperature_c=celsius)], **more))


def test_it():
    assert [each.title for each in outcome(95)] == ["GPU 0 was at 95 °C on average"]
    assert outcome(90) == []
    assert isinstance(outcome(None), NotEvaluable)
    assert outcome(95, site=Site(thresholds={"gpu-hot.celsius": 96})) == []
    run = evidence(60, [device(60, temperature_c=95)])
    assert "gpu-hot" in [each.id for each in evaluate(run).raised]
"""


def test_a_rule(tree):
    tree.write("gpumon/analysis/rules/hot.py", _RULE)
    tree.insert("gpumon/analysis/rules/catalogue.py", "    host_stall,\n", "    hot,\n")
    tree.replace("gpumon/analysis/rules/catalogue.py", "(health,),", "(health, hot),")
    follows(tree, "Add a rule", most=2)

    tree.write("tests/analysis/rules/test_hot.py", _ITS_TEST)
    tree.run("docs.generate")
    assert "| `gpu-hot` | both | a GPU above" in tree.read("docs/findings.md")
    tree.check("tests/analysis/rules/test_hot.py", "tests/docs/test_reference.py")


_ITS_NUMBER = """\
from gpumon.analysis.rules.cpu_peak import cpu_underused
from gpumon.site import Site
from tests.analysis.rightsize.test_recommend import run


def test_it():
    assert [each.level for each in cpu_underused(run(cores=1.4, peak=3.1))] == ["info"]
    site = Site(thresholds={"cpu-underused.least_cores": 8})
    assert cpu_underused(run(cores=1.4, peak=3.1, site=site)) == []
"""


def test_a_threshold(tree):
    path = "gpumon/analysis/rules/cpu_peak.py"
    tree.insert(path, "class CpuUnderused(NamedTuple):\n", "    least_cores: Cores = 2\n")
    tree.replace(path, "if cpus <= 2 or", "if cpus <= t.least_cores or")
    follows(tree, "Add a threshold", most=1)

    tree.write("tests/analysis/rules/test_number.py", _ITS_NUMBER)
    tree.run("docs.generate")
    assert "`least_cores` 2 cores" in tree.read("docs/findings.md")
    tree.check("tests/analysis/rules/test_number.py", "tests/analysis/rules/test_cpu.py")


_FORMAT = '''\
"""A table as tab-separated values."""

from __future__ import annotations

from typing import TextIO

from gpumon.export.tables import Row, Table


class Writer:
    """A line per row."""

    def __init__(self, table: Table, stream: TextIO) -> None:
        self._stream = stream
        stream.write("\\t".join(column.name for column in table.columns) + "\\n")

    def write(self, row: Row) -> None:
        cells = ("" if value is None else f"{value}" for value in row.values)
        self._stream.write("\\t".join(cells) + "\\n")

    def close(self) -> None:
        """Nothing is held back."""
'''


def test_an_export_format(tree):
    tree.write("gpumon/export/tsv.py", _FORMAT)
    tree.insert(
        "gpumon/export/formats.py",
        '    "csv": Format("csv", "csv"),\n',
        '    "tsv": Format("tsv", "tsv"),\n',
    )
    follows(tree, "Add an export format", most=2)

    stream = tree.root / "stream.jsonl"
    stream.write_text(tree.run("gpumon", "collect", "--count", "2", "--interval", "0.1"))
    tree.run("gpumon", "export", str(stream), "--to", "tsv", "-o", str(tree.root / "tables"))
    head, *rows = (tree.root / "tables" / "host.tsv").read_text().splitlines()
    assert "mem_used_bytes" in head.split("\t")
    assert len(rows) == 2
    tree.run("docs.generate")
    assert "csv|tsv" in tree.read("docs/gpumon.1").replace("\\|", "|")
    tree.check("tests/docs/test_reference.py")


_TRANSPORT = '''\
"""A node by a program that runs a command there: `kubectl exec`, `docker exec`."""

from __future__ import annotations

from gpumon.transport.local import ChildStream
from gpumon.transport.stream import Stream


class ExecTransport:
    """Runs the agent by `exec`; thread-safe, as it shares nothing."""

    name = "exec"
    lacks = ""

    def open(self, node: str, argv: list[str]) -> Stream:
        return ChildStream(["env", f"NODE={node}", *argv])

    def close(self) -> None:
        """Nothing is shared."""
'''
_ITS_STREAM = """\
from gpumon.slurm.job import Job
from gpumon.transport.available import AvailableTransports, Here


def test_it():
    job = Job(raw_id="7", id="7", state="RUNNING", nodes=("n1",), node_list="n1")
    transports = AvailableTransports(lambda *_: None, Here("login", ""), via="exec").for_jobs([job])
    transport = transports["n1"].fallback("n1").next()
    stream = transport.open("n1", ["sh", "-c", "echo $NODE; cat"])
    stream.write(b"to the agent")
    said = b""
    while len(said) < 15:
        said += stream.read()
    assert said == b"n1\\\\nto the agent"
    stream.close()
    assert stream.read() == b""
""".replace("\\\\", "\\")


def test_a_transport(tree):
    tree.write("gpumon/transport/execute.py", _TRANSPORT)
    available = "gpumon/transport/available.py"
    line = "from gpumon.transport.fallback import Transports\n"
    tree.replace(available, line, f"from gpumon.transport.execute import ExecTransport\n{line}")
    tree.replace(
        available, "[ssh, self.openssh, *sruns]", "[ssh, self.openssh, *sruns, ExecTransport()]"
    )
    tree.replace(
        "gpumon/cli/attach.py", '("ssh", "openssh", "srun")', '("ssh", "openssh", "srun", "exec")'
    )
    follows(tree, "Add a transport", most=3)

    tree.write("tests/transport/test_execute.py", _ITS_STREAM)
    tree.run("docs.generate")
    tree.check("tests/transport/test_execute.py", "tests/docs/test_reference.py")


def shown(tree: Tree, key: str, text: str) -> None:
    """Press a key in the demo of the copy, and wait for a text."""
    command = [
        "env",
        "-C",
        f"{tree.root}",
        f"PYTHONPATH={tree.root}",
        sys.executable,
        "-m",
        "gpumon",
        "demo",
    ]
    with Session(command, (120, 40), environment()) as session:
        session.wait_for("finetune-llama", HANGS_S)
        session.keys(key)
        session.wait_for(text, HANGS_S)


@pytest.mark.terminal
def test_a_key(tree):
    report = "gpumon/tui/screens/report.py"
    tree.insert(
        report,
        '"save the report as Markdown in this folder", _HERE),\n',
        '        Key("u", "waste", "u", "Waste", "say what was wasted"),\n',
    )
    tree.insert(
        report,
        "        self.opened: Finding | None = None\n",
        '\n    def action_waste(self) -> None:\n        self.shell.say("nothing was wasted")\n',
    )
    follows(tree, "Add a key", most=1)

    tree.run("docs.generate")
    assert "| `u` | Say what was wasted. |\n" in tree.read("docs/keys.md")
    shown(tree, "u", "nothing was wasted")
    tree.check("tests/docs/test_reference.py")


_SCREEN = '''\
"""How many devices there are."""

from __future__ import annotations

from gpumon.tui.keys import Key
from gpumon.tui.moment import Moment
from gpumon.tui.parts.view import View
from gpumon.tui.screens.base import Pane


class CountPane(Pane):
    """One line."""

    name = "count"
    keys = (Key("u", "count", "u", "Count", "how many devices there are"),)

    def action_count(self) -> None:
        self.shell.show(self.name)

    def draw(self, moment: Moment, width: int, height: int) -> View:
        return View([[(f" there are {len(moment.devices)} devices", "title")]])
'''


@pytest.mark.terminal
def test_a_screen(tree):
    screens = "gpumon/tui/screens/__init__.py"
    tree.write("gpumon/tui/screens/count.py", _SCREEN)
    line = "from gpumon.tui.screens.device.screen import DevicePane\n"
    tree.replace(screens, line, f"from gpumon.tui.screens.count import CountPane\n{line}")
    tree.insert(screens, "    *ReportPane.keys,\n", "    *CountPane.keys,\n")
    tree.insert(
        screens, "        NodePane(shell, selection),\n", "        CountPane(shell, selection),\n"
    )
    follows(tree, "Add a screen", most=2)

    tree.run("docs.generate")
    shown(tree, "u", "there are 4 devices")
    tree.check("tests/docs/test_reference.py")
