"""The probe in real Pythons: what it writes, and that a program feels nothing of it."""

import ast
import json
import os
import sys
from pathlib import Path

import pytest

from gpumon.services import probing
from tests.probe.standins import JAX, TENSORFLOW, TORCH, plant
from tests.probe.world import WAIT, World

INSIDE = Path(probing.INSIDE)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    plant(world.packages, TORCH, JAX, TENSORFLOW)
    return world


def test_it_needs_python_3_6_alone():
    imported = set()
    for path in INSIDE.glob("gpumon_*.py"):
        text = path.read_text()
        ast.parse(text, feature_version=(3, 6))
        found = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Import)]
        imported |= {name.name for each in found for name in each.names}
    assert imported <= {
        "os", "sys", "_thread", "_signal", "threading", "gc", "json", "atexit"
    }  # fmt: skip


def test_torch_tells_its_pool_with_peaks_that_stand(world):
    code, _, err = world.run(
        WAIT
        + """
import torch
torch.cuda.init()
torch.cuda.hold(1, 40 << 30, 50 << 30)
told(lambda found: found["pools"])
torch.cuda.hold(1, 10 << 30, 50 << 30)
torch.cuda.reset_peak_memory_stats(1)
"""
    )
    assert code == 0, err
    assert world.last()["pools"] == [
        {
            "by": "torch", "device": 1, "uuid": "11111111-2222-3333-4444-555555555555",
            "used": 10 << 30, "peak": 40 << 30, "reserved": 50 << 30, "reserved_peak": 50 << 30,
            "retries": 3, "ooms": 0,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("begin", "pool"),
    [
        (
            "import jax; jax._src.xla_bridge.begun = True",
            {"by": "jax", "device": 0, "used": 5 << 30, "peak": 6 << 30, "reserved": 60 << 30,
             "limit": 60 << 30},
        ),
        (
            "import tensorflow\ntensorflow.python.eager.context._context._initialized = True",
            {"by": "tensorflow", "device": 0, "used": 7 << 30, "peak": 9 << 30},
        ),
        (
            "import tensorflow\ntensorflow.config.chosen = [3]\n"
            "tensorflow.python.eager.context._context._initialized = True",
            {"by": "tensorflow", "device": 3, "used": 7 << 30, "peak": 9 << 30},
        ),
    ],
)  # fmt: skip
def test_others_tell_theirs(world, begin, pool):
    code, _, err = world.run(f"{WAIT}{begin}\ntold(lambda found: found['pools'])")
    assert code == 0, err
    assert world.last()["pools"] == [pool]
    assert world.last()["visible"] == os.environ.get("CUDA_VISIBLE_DEVICES")


def test_of_a_gpu_that_tensorflow_divided_nothing_is_told(world):
    text = f"import sys; sys.path.append({str(INSIDE)!r}); import gpumon_looks as probe, tensorflow"
    text += """
tensorflow.python.eager.context._context._initialized = True
print(len(list(probe._tensorflow(tensorflow))))
tensorflow.config.divided = 2
print(len(list(probe._tensorflow(tensorflow))))
"""
    assert world.run(text, probed=False)[:2] == (0, b"1\n0\n")


STEPS = (
    WAIT
    + """
import torch
optimizer = torch.optim.optimizer.Optimizer()
other = torch.optim.optimizer.Optimizer()
while not torch.optim.optimizer._global_optimizer_post_hooks:
    time.sleep(0.01)
"""
)


def test_steps_are_counted_and_timed(world):
    code, _, err = world.run(
        STEPS
        + """
for n in range(500):
    optimizer.step()
    time.sleep(0.002)
    if n % 10 == 0:
        other.step()
"""
    )
    assert code == 0, err
    found = world.last()
    assert found["steps"] == 500
    assert min(found["step_s"], found["step_p95_s"]) >= 0.002
    assert "data_wait_percent" not in found  # no loader of PyTorch's
    assert found["place"].startswith("program.py:")


def test_steps_of_optimizers_that_follow_each_other_add_up(world):
    code, _, err = world.run(
        STEPS
        + """
kept = []
for trial in range(3):
    kept.append(torch.optim.optimizer.Optimizer())
    for n in range(200):
        kept[-1].step()
    time.sleep(0.5)
    told(lambda found: found["steps"] == 200 * len(kept))
"""
    )
    assert code == 0, err
    assert world.last()["steps"] == 600


def test_a_program_that_ends_soon_has_told_its_steps(world):
    code, _, err = world.run(STEPS + "time.sleep(0.3)\nfor n in range(5):\n    optimizer.step()")
    assert code == 0, err
    assert world.last()["steps"] == 5


def test_a_wait_for_data_is_seen_with_its_line(world):
    code, _, err = world.run(
        STEPS
        + """
from torch.utils.data.dataloader import Iter
optimizer.step()
rows = iter(Iter())
told(lambda found: any(next(rows) for _ in range(20)) or found.get("data_wait_percent", 0) > 50)
"""
    )
    assert code == 0, err
    found = world.last()
    assert found["waits_for"] in ("", "data")
    assert found["place"].startswith("program.py:")


def test_a_loader_of_the_programs_own_is_no_wait_of_none(world):
    """PyTorch imports its loader's module by itself: 0 % would be false."""
    code, _, err = world.run(
        STEPS
        + """
import torch.utils.data.dataloader
for n in range(300):
    optimizer.step()
    time.sleep(0.003)
"""
    )
    assert code == 0, err
    assert "data_wait_percent" not in world.last()


WORKER = (
    STEPS.replace("import torch", "import torch, torch.utils.data, multiprocessing")
    + """
class Dataset:
    def __getitem__(self, n):
        read = told(lambda found: found["worker"] == 2 and found["waits_for"] == "")
        assert read["place"].startswith("program.py:"), read
        assert not {"steps", "rank", "data_wait_percent"} & read.keys(), read

def main():
    optimizer.step()
    optimizer.step()
    context = multiprocessing.get_context("fork")
    indices = context.Queue()
    loop = torch.utils.data.worker_loop
    worker = context.Process(target=loop, args=(Dataset(), indices, 2), daemon=True)
    worker.start()
    indices.put(1)
    rest = told(lambda found: found["waits_for"] == "work", worker.pid)
    assert rest["place"].endswith("get"), rest
    assert ":" not in rest["place"], rest  # not of the process that it was forked from
    indices.put(None)
    worker.join()
    assert worker.exitcode == 0

main()
"""
)


def test_a_loader_s_worker_tells_where_it_reads_and_when_it_waits_for_work(world):
    code, _, err = world.run(WORKER, RANK="3")
    assert code == 0, err


def test_the_rank_is_that_of_the_launcher(world):
    code, _, err = world.run(
        STEPS + "optimizer.step()\ntold(lambda found: found['rank'] == 3)",
        SLURM_PROCID="0", RANK="3",
    )  # fmt: skip
    assert code == 0, err


def test_no_other_thread_adds_a_hook_beside_others(world):
    """Torch might just be going over them; the thread that imports its optimizers may."""
    code, out, err = world.run(
        """
import torch, time
hooks = torch.optim.optimizer._global_optimizer_post_hooks
hooks["mine"] = print
time.sleep(1)
print(len(hooks))
try:
    import torch.optim.another
except ImportError:
    print(len(hooks))
"""
    )
    assert (code, out) == (0, b"1\n2\n"), err


def test_nothing_is_told_and_begun_without_a_device_or_a_step(world):
    code, _, err = world.run("import torch, jax, tensorflow, time; time.sleep(1)")
    assert (code, err) == (0, b"")
    assert world.files() == []


FORK = (
    STEPS
    + """
optimizer.step()
told(lambda found: found["steps"] == 1)
pid = os.fork()
if not pid:
    for n in range(7):
        optimizer.step()
    while not torch.optim.optimizer._global_optimizer_post_hooks:
        time.sleep(0.01)
    for n in range(5):
        optimizer.step()
    told(lambda found: found["steps"] >= 4)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
told(lambda found: optimizer.step() or found["steps"] > 1)
"""
)


def test_a_forks_child_has_a_file_and_counts_of_its_own(world):
    code, _, err = world.run(FORK)
    assert code == 0, err
    assert len(world.files()) == 2


SPAWN = (
    STEPS.replace("import torch", "import torch, multiprocessing")
    + """
def work():
    optimizer.step()
    told(lambda found: optimizer.step() or found["steps"] > 2)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
"""
)


def test_a_spawned_child_is_probed_too(world):
    code, _, err = world.run(SPAWN)
    assert code == 0, err
    assert len(world.files()) == 1


def test_the_stack_of_the_main_thread_names_files_lines_and_functions_alone(world):
    program = (
        WAIT
        + """
import torch

def train(password):
    return told(lambda found: len(found.get("stack", [])) > 2)

torch.cuda.init()
torch.cuda.hold(0, 1, 2)
print(json.dumps(train("hunter2")["stack"]))
"""
    )
    code, out, err = world.run(program)
    assert code == 0, err
    assert b"hunter2" not in out + b"".join(path.read_bytes() for path in world.files())
    stack = json.loads(out)
    functions = {frame[2] for frame in stack}
    assert {"train", "<module>"} <= functions
    own = [frame for frame in stack if frame[3]]
    assert {frame[0] for frame in own} == {"program.py"}
    lines = program.splitlines()
    (train,) = [frame for frame in stack if frame[2] == "train"]
    assert lines[train[1] - 1].startswith("    return told(")
    assert all("/" not in frame[0] for frame in own)
    assert world.last()["stack"] == []  # at the exit it would be the probe's own


def test_a_deep_stack_is_cut_and_names_of_libraries_are_told_within_them(world):
    (world.packages / "torch" / "deep.py").write_text(
        "def down(n, last):\n    return down(n - 1, last) if n else last()\n"
    )
    program = (
        WAIT
        + """
import torch, torch.deep
torch.cuda.init()
torch.cuda.hold(0, 1, 2)
names = lambda found: [frame[0] for frame in found.get("stack", [])]
last = lambda: told(lambda found: "torch/deep.py" in names(found))
print(json.dumps(torch.deep.down(200, last)["stack"]))
"""
    )
    code, out, err = world.run(program)
    assert code == 0, err
    stack = json.loads(out)
    assert len(stack) == 64
    assert {frame[3] for frame in stack if frame[0] == "torch/deep.py"} == {False}


def test_generated_code_is_not_the_user_s_and_hides_the_folder_it_came_from(world):
    program = (
        WAIT
        + """
import torch
torch.cuda.init()
torch.cuda.hold(0, 1, 2)
last = lambda: told(lambda found: found.get("stack"))
for name in "<eval_with_key>.1 from /home/jane/secret/a.py:3", "/tmp/torchinductor_jane/o5/co5.py":
    exec(compile("def call(inner): return inner()", name, "exec"))
    last = (lambda call, inner: lambda: call(inner))(call, last)
found = last()
print(json.dumps(found["stack"]))
"""
    )
    code, out, err = world.run(program)
    assert code == 0, err
    assert b"jane" not in out
    generated = [frame for frame in json.loads(out) if frame[2] == "call"]
    assert {(frame[0], frame[3]) for frame in generated} == {
        ("<eval_with_key>", False), ("co5.py", False)
    }  # fmt: skip


#: programs that end in every way, and print what they see of the interpreter
FELT = {
    "plain": "import sys; print(sys.argv, sys.path, sys.flags, 1 / 3)",
    "raises": "import torch\nraise ValueError('x' * 10)",
    "exits": "import torch, sys; print('a'); sys.exit('for a reason')",
    "exits at once": "import torch, os; torch.cuda.init(); os._exit(4)",
    "killed": "import torch, os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "fails at its end": "import torch, atexit, sys\n"
    "sys.unraisablehook = lambda it: print(it.exc_value)\natexit.register(lambda: 1 / 0)",
    "forks": "import torch, os, warnings\nwarnings.simplefilter('error')\n"
    "if os.fork():\n    print(os.wait()[1])\nelse:\n    raise SystemExit(3)",
    "no such module": "import torhc",
    "a torn torch": "import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
    "import time; time.sleep(0.6)",
    "threads": "import torch, threading; print(threading.enumerate() == [threading.main_thread()])",
}


@pytest.mark.parametrize("name", FELT)
@pytest.mark.parametrize("flags", [(), ("-I",), ("-E",), ("-s",), ("-W", "always")])
def test_a_program_ends_and_prints_as_without_it(world, name, flags):
    assert world.run(FELT[name], *flags) == world.run(FELT[name], *flags, probed=False)


#: Pythons of the users: those that stand here, as `pyenv` installs them
OTHERS = sorted(
    path
    for path in Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
        "versions/*/bin/python"
    )
)
PLAIN = [name for name in FELT if name not in ("plain", "fails at its end")]


@pytest.mark.parametrize("python", OTHERS, ids=lambda path: path.parts[-3])
def test_other_pythons_end_and_print_as_without_it(world, python):
    for text in ("import sys; print(sys.path)", *(FELT[name] for name in PLAIN)):
        found = [world.run(text, "-W", "always", probed=on, python=python) for on in (True, False)]
        assert found[0] == found[1]


@pytest.mark.parametrize("python", OTHERS, ids=lambda path: path.parts[-3])
def test_other_pythons_tell_their_pools(world, python):
    text = WAIT.replace('f"/{pid or os.getpid()}-*.json"', '"/%d-*.json" % os.getpid()')
    code, _, err = world.run(
        f"{text}import torch\ntorch.cuda.init()\ntorch.cuda.hold(0, 1, 2)\n"
        "import sys; sys.version_info < (3, 6) or told(lambda found: found['pools'])",
        python=python,
    )
    assert code == 0, err
    assert bool(world.files()) == (not python.parts[-3].startswith("2."))


def test_another_sitecustomize_runs_as_before_and_so_do_its_errors(world):
    for text in ("import sys; print('theirs', sys.path)", "raise RuntimeError('theirs')"):
        (world.packages / "sitecustomize.py").write_text(text)
        program = "import sys; print(sys.modules.get('sitecustomize') is None)"
        with_it, without = world.run(program), world.run(program, probed=False)
        assert with_it == without
        assert b"theirs" in without[1] + without[2] or b"sitecustomize" in without[2]


#: what a tool of the same kind does: stands first, and gives the next one its turn
TOOL = """
import os, sys
sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
del sys.modules["sitecustomize"]
import sitecustomize
import atexit; atexit.register(print, "the tool's end")
"""


def test_a_tool_that_comes_in_the_same_way_and_the_probe_run_beside_each_other(world):
    tool = world.folder / "tool"
    tool.mkdir()
    (tool / "sitecustomize.py").write_text(TOOL)
    (world.packages / "sitecustomize.py").write_text("print('theirs')")
    program = STEPS + "optimizer.step(); optimizer.step(); told(lambda found: found['steps'] == 2)"
    before = os.pathsep.join([str(tool), str(INSIDE), str(world.packages)])
    code, out, err = world.run(
        program, probed=False, PYTHONPATH=before, GPUMON_PROBE_DIR=str(world.told)
    )
    assert (code, out) == (0, b"theirs\nthe tool's end\n"), err


#: `coverage run` in short: a tracer that sees each line
TRACED = """
import sys, torch
lines = set()
def trace(frame, event, argument):
    lines.add((frame.f_code.co_filename, frame.f_lineno))
    return trace
sys.settrace(trace)
optimizer = torch.optim.optimizer.Optimizer()
for n in range(200):
    optimizer.step()
sys.settrace(None)
print(sorted(line for name, line in lines if name == __file__))
"""


def test_a_tracer_sees_the_same_lines_of_the_program(world):
    assert world.run(TRACED) == world.run(TRACED, probed=False)


def test_without_its_variables_it_is_not_there(world):
    """As behind `apptainer exec --cleanenv`, `env -i` and `sudo`."""
    program = (
        WAIT
        + "import subprocess, sys\nsys.exit(subprocess.call("
        + repr(
            ["env", "-i", sys.executable, "-c", "import sys; print(sys.path, len(sys.meta_path))"]
        )
        + "))"
    )
    found = world.run(program)
    assert found == world.run(program, probed=False)
    assert found[0] == 0
    assert world.files() == []


KILLED = (
    STEPS
    + """
optimizer.step()
told(lambda found: found["steps"] == 1)
import signal
os.kill(os.getpid(), signal.SIGKILL)
"""
)


def test_what_a_killed_process_left_is_removed_by_the_next(world):
    assert world.run(KILLED)[0] == -9
    (left,) = world.files()
    other = world.told / "of-the-user.json"
    other.touch()
    for path in (left, other):
        os.utime(path, (1, 1))
    living = world.told / f"{os.getpid()}-1.json"
    living.touch()
    os.utime(living, (1, 1))
    assert world.run(KILLED)[0] == -9
    assert not left.exists()
    assert other.exists()
    assert living.exists()


def test_a_folder_that_others_can_write_to_is_not_used(world):
    os.chmod(world.told, 0o777)
    code, _, err = world.run("import torch, time; torch.cuda.init(); time.sleep(1)")
    assert (code, err, world.files()) == (0, b"", [])


def test_a_full_disk_stops_the_probe_and_nothing_else(world):
    program = (
        STEPS
        + """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
optimizer.step()
time.sleep(3)
print("done")
"""
    )
    assert world.run(program) == (0, b"done\n", b"")
    assert world.files() == []


def test_a_framework_that_fails_is_asked_no_more_and_others_are(world):
    (world.packages / "torch" / "cuda.py").write_text("def is_initialized():\n    raise OSError\n")
    code, _, err = world.run(
        f"{WAIT}import torch, jax; jax._src.xla_bridge.begun = True\ntold(lambda f: f['pools'])"
    )
    assert code == 0, err
    assert [pool["by"] for pool in world.last()["pools"]] == ["jax"]


SIGNALS = """
import os, signal, time, torch
torch.cuda.init()
time.sleep(0.5)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1)
"""


def test_a_signal_that_the_program_waits_for_reaches_it(world):
    assert world.run(SIGNALS) == world.run(SIGNALS, probed=False) == (0, b"True\n", b"")


def test_what_could_not_be_written_once_is_written_later(world):
    program = (
        STEPS
        + """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
optimizer.step()
time.sleep(3)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
told(lambda found: found["steps"])
"""
    )
    code, _, err = world.run(program, RANK="²")  # no number, but a digit
    assert code == 0, err
    assert world.last()["rank"] is None
