"""What hangs, forks and fails around the probe is not felt by the program."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.collect.base import Tick
from gpumon.collect.proc.probed import Probed
from gpumon.collect.procfs import ProcFs
from gpumon.services import probing
from tests.e2e.program import environment
from tests.probe.standins import TORCH, plant
from tests.probe.test_inside import OTHERS, STEPS
from tests.probe.world import WAIT, World
from tests.support.waiting import HANGS_S


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    plant(world.packages, TORCH)
    return world


#: file systems in which every look hangs: of a server that answers nothing, where that can be had
HUNG = ["fuse"] if os.getuid() == 0 and os.path.exists("/dev/fuse") else []


@contextmanager
def mounted(folder):
    folder.mkdir()
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "hung.py"), str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert server.stdout.readline() == b"mounted\n"
        yield folder
    finally:
        server.communicate(b"")


TRAINS = """
import os, time, torch
optimizer = torch.optim.optimizer.Optimizer()
for n in range(10):
    optimizer.step()
    time.sleep(0.05)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
print("trained")
"""


@pytest.mark.parametrize("kind", HUNG)
def test_a_program_whose_probe_was_given_a_folder_on_a_hung_server_ends(world, kind):
    with mounted(world.folder / kind) as hung:
        program = f"import os; os.environ['GPUMON_PROBE_DIR'] = {str(hung / 'told')!r}\n{TRAINS}"
        link = world.folder / "link"
        link.symlink_to(hung / "told")
        assert world.run(program) == (0, b"trained\n", b"")
        assert world.run(program.replace(str(hung / "told"), str(link)))[1] == b"trained\n"


@pytest.mark.parametrize("kind", HUNG)
def test_who_watches_while_tmpdir_hangs_has_another_folder(world, kind):
    with mounted(world.folder / kind) as hung:
        text = f"{TRAINS}import gpumon\ngpumon.watch(); gpumon.step(); time.sleep(1)"
        assert world.run(text, probed=False, TMPDIR=str(hung))[:2] == (0, b"trained\n")
        found = probing.folder_of({"TMPDIR": str(hung)})
        assert found.startswith(f"/tmp/gpumon-probe-{os.getuid()}")


@pytest.mark.parametrize("kind", HUNG)
def test_a_command_is_recorded_while_tmpdir_hangs(world, kind):
    with mounted(world.folder / kind) as hung:
        env = environment(TMPDIR=str(hung), GPUMON_STATE=str(world.folder / "state"))
        done = subprocess.run(
            [sys.executable, "-m", "gpumon", "record", "--probe", "--", "echo", "trained"],
            env=env, capture_output=True, text=True, timeout=HANGS_S,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr


@pytest.mark.parametrize("kind", HUNG)
def test_who_reads_a_process_of_a_hung_folder_goes_on(world, kind):
    with mounted(world.folder / kind) as hung:
        environ = {**os.environ, "GPUMON_PROBE_DIR": str(hung), "TMPDIR": str(hung)}
        child = subprocess.Popen(["sleep", "100"], env=environ)
        try:
            files, stat = Probed(lambda visible, order: {}), ProcFs("/proc").stat(child.pid)
            files.find(child.pid, stat, os.getuid())
            files.put(tick := Tick(0.0, 0.0), child.pid)
            assert tick.rows == {}
            assert Probed(lambda visible, order: {}, str(hung)).pids() == []
        finally:
            child.kill()
            child.wait()


#: the disk of the node hangs: no thread but the main one comes back from it
DISK = """
import os, threading
really = os.open
def hangs(path, *given, **named):
    if threading.current_thread() is not threading.main_thread() or "told" in str(path):
        threading.Lock().acquire() and threading.Event().wait()
    return really(path, *given, **named)
os.open = hangs
"""


def test_a_disk_that_hangs_holds_up_one_fork_and_not_the_exit(world):
    """The first fork waits a moment for the thread, no other one does."""
    text = f"{STEPS}{DISK}optimizer.step(); time.sleep(0.8)\n{TRAINS}"
    assert world.run(text)[:2] == (0, b"trained\n")
    assert world.files() == []


def test_a_disk_that_hangs_from_some_time_on_does_not_hold_up_the_exit(world):
    text = f"{STEPS}optimizer.step(); told(lambda found: found['steps'])\n{DISK}time.sleep(2.5)"
    assert world.run(text) == (0, b"", b"")


#: what the main thread does with files, as Python's audit hooks see it
AUDITED = """
import os, sys, _thread
main, seen = _thread.get_ident(), []
def hook(event, given):
    if _thread.get_ident() == main and event not in ("import", "compile", "exec"):
        paths = [str(each) for each in given if isinstance(each, (str, bytes))]
        seen.extend((event, each) for each in paths if "{0}" in each or "{1}" in each)
sys.addaudithook(hook)
"""


def test_the_programs_threads_touch_no_file_of_the_probe(world):
    text = AUDITED.format(world.told, probing.INSIDE) + STEPS
    text += """
for n in range(12):
    optimizer.step()
    time.sleep(0.25)
before = len(seen)
child = os.fork()
if not child:
    optimizer.step()
    time.sleep(1)
    os._exit(len(seen) - before)
print(os.waitpid(child, 0)[1], seen)
"""
    text = text.replace(
        "import torch\n", "import atexit\natexit.register(lambda: print(seen))\nimport torch\n", 1
    )
    assert world.run(text)[:2] == (0, b"0 []\n[]\n")
    assert len(world.files()) == 2


def version(python):
    return tuple(map(int, python.parts[-3].split(".")[:2]))


NEW = [each for each in OTHERS if version(each) >= (3, 10)]
FORKS = """
import os, warnings, sys
most = 0
def count():
    global most
    most = max(most, len(os.listdir("/proc/self/task")))
os.register_at_fork(before=count)  # the first, and so the last that runs before a fork
warnings.simplefilter("error")
import torch, torch.optim.optimizer, time
optimizer = torch.optim.optimizer.Optimizer()
for n in range(FORKS):
    if n % 3:
        optimizer.step()
    if n % 7 == 0:
        [[] for _ in range(2000)] and time.sleep(0.02)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
print(most)
"""


@pytest.mark.parametrize(
    "python", [each for each in OTHERS if version(each) >= (3, 8)], ids=lambda path: path.parts[-3]
)
def test_no_fork_sees_our_thread_nor_is_warned_of_it(world, python):
    """From Python 3.12 on a fork beside a thread that the kernel still has is warned of."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        count = os.environ.get("GPUMON_FORKS", "100")
        found = world.run(FORKS.replace("FORKS", count), python=python)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert found == (0, b"1\n", b"")


def test_a_child_that_prepares_to_become_another_program_has_one_thread(world):
    """What it does may need that, as a user namespace of its own."""
    text = (
        f"{STEPS}optimizer.step(); told(lambda found: found['steps'])"
        + """
import subprocess
def prepare():
    time.sleep(0.5)
    os.write(1, b"%d\\n" % len(os.listdir("/proc/self/task")))
subprocess.run(["true"], preexec_fn=prepare)
"""
    )
    assert world.run(text) == (0, b"1\n", b"")


def test_a_probe_that_cannot_note_all_steps_ends(world):
    text = (
        f"import sys; sys.path.append({probing.INSIDE!r}); import gpumon_steps as steps"
        + """
counted = steps.Steps()
for n in range(steps._MOST_TIMES):
    counted._hook.step(counted, (), {})
try:
    counted.look()
except OverflowError:
    counted.stop()
for n in range(9):
    counted._hook.step(counted, (), {})
print(len(counted._hook.times))
"""
    )
    assert world.run(text, probed=False) == (0, b"0\n", b"")


@pytest.mark.parametrize("given", ["/nowhere/told", "/dev/null", "", "told"])
def test_an_inherited_folder_that_is_not_there_stops_neither_steps_nor_who_watches(world, given):
    text = (
        f"import os; os.environ['GPUMON_PROBE_DIR'] = {given!r}\n{TRAINS}"
        + """
import gpumon
gpumon.step()
gpumon.watch()
for n in range(20):
    gpumon.step()
    time.sleep(0.05)
"""
    )
    code, out, err = world.run(text)
    assert (code, out) == (0, b"trained\n"), err
    taken = world.folder / f"gpumon-probe-{os.getuid()}"
    assert len(list(taken.glob("*.json"))) == 1


def test_a_missing_tmpdir_is_not_made(world):
    missing = world.folder / "not" / "there"
    text = "import gpumon, time; gpumon.watch(); gpumon.step(); time.sleep(0.6)"
    assert world.run(text, probed=False, TMPDIR=str(missing)) == (0, b"", b"")
    found = probing.probe_of({"TMPDIR": str(missing)}).variables["GPUMON_PROBE_DIR"]
    assert found.startswith("/tmp/")
    assert not missing.parent.exists()


def test_a_folder_that_was_only_named_keeps_its_mode_and_takes_nothing(tmp_path):
    """It may be the user's home; or root's `/`, which then no other user could enter."""
    named = tmp_path / "home"
    named.mkdir(0o755)
    named.chmod(0o755)
    (named / "1-1.json").touch()
    os.utime(named / "1-1.json", (0, 0))
    found = probing.folder_of({"GPUMON_PROBE_DIR": str(named), "TMPDIR": str(tmp_path)})
    assert found == str(tmp_path / f"gpumon-probe-{os.getuid()}")
    probing.sweep({"GPUMON_PROBE_DIR": str(named), "TMPDIR": str(tmp_path)})
    assert named.stat().st_mode & 0o777 == 0o755
    assert os.listdir(named) == ["1-1.json"]


def test_what_is_called_without_a_descriptor_left_does_nothing(world):
    text = """
import gpumon, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
gpumon.step(); gpumon.watch(); gpumon.mark("here"); gpumon.step()
print("trained")
"""
    assert world.run(text) == (0, b"trained\n", b"")


def test_marks_on_a_file_system_that_hangs_are_given_up(world):
    text = """
import gpumon, os, threading
gpumon.mark("first")
def hangs(*given, **named):
    threading.Lock().acquire() and threading.Event().wait()
import gpumon.services.mark
gpumon.services.mark.marks_dir = hangs
for n in range(200):
    gpumon.mark(n)
print("trained")
"""
    assert world.run(text, probed=False) == (0, b"trained\n", b"")


WATCHED = WAIT + "import gpumon; gpumon.watch(); gpumon.step(); time.sleep(0.3); print('trained')\n"


def test_a_program_whose_threads_are_green_has_no_thread_of_ours(world):
    """As gevent and eventlet have it; test_frameworks.py has the real ones."""
    green = """
import _thread
_thread.start_new_thread = lambda call, given=(), named={}: 0
"""
    count = "print(len(os.listdir('/proc/self/task')))\n"
    assert world.run(green + TRAINS + WATCHED + count)[:2] == (0, b"trained\ntrained\n1\n")
    later = STEPS + "optimizer.step(); told(lambda found: found['steps'])" + green
    later += "time.sleep(0.8)\n" + count
    assert world.run(later)[:2] == (0, b"1\n")


INNER = """
try:
    import _interpreters as made
    inner, run, end = made.create("legacy"), made.exec, made.destroy
except ImportError:
    import _xxsubinterpreters as made
    inner, run, end = made.create(), made.run_string, made.destroy
run(inner, "import torch, time; time.sleep(0.5)")
end(inner)
print("trained")
"""


@pytest.mark.parametrize("python", NEW, ids=lambda path: path.parts[-3])
def test_an_interpreter_within_ends_without_a_thread_of_ours(world, python):
    """One that is left makes Python abort."""
    assert world.run(INNER, python=python)[:2] == (0, b"trained\n")
