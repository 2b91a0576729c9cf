"""The probe inside real PyTorch, JAX and TensorFlow, built for CPUs.

They show steps, waits and lines, and that a program feels nothing. Memory pools exist on a GPU
alone: here only the names that the probe asks for are checked, stand-ins show the arithmetic
(test_inside.py), and tests/gpu asks real ones.
"""

import json

import pytest

from gpumon.model.sample import Sample
from gpumon.recording import Recording
from gpumon.services import probing
from tests.e2e.program import environment, gpumon
from tests.probe.world import WAIT, World

pytestmark = pytest.mark.slow

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def real(tmp_path, frameworks):
    return Real(World(tmp_path), frameworks)


class Real:
    """A world whose Python has the frameworks."""

    def __init__(self, world, python):
        self.world, self.python = world, python

    def run(self, text, *flags, **more):
        return self.world.run(text, *flags, python=self.python, **{**QUIET, **more})

    def whole(self, text, *flags, **more):
        code, out, err = self.run(text, *flags, **more)
        assert code == 0, err.decode()
        return out.decode()


def line_of(text, what):
    """A place in the program, as the probe names it."""
    (number,) = [n for n, line in enumerate(text.splitlines(), 1) if what in line]
    return f"program.py:{number}"


#: a network, and `begin`, which takes steps until the probe counts them and returns how many it did
NET = (
    WAIT
    + """
import torch

torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(net.parameters())

def step(rows=torch.ones(1, 8), optimizer=optimizer):
    optimizer.zero_grad()
    net(rows).sum().backward()
    optimizer.step()

def begin():
    while not glob.glob(os.environ["GPUMON_PROBE_DIR"] + f"/{os.getpid()}-*.json"):
        step()
        time.sleep(0.01)
    time.sleep(2.5)  # the next file has the last of them
    return told(lambda found: True)["steps"]
"""
)


def test_each_step_is_counted_from_the_first(real):
    text = f"""{NET}
second = torch.optim.SGD(net.parameters(), 0.1)
for n in range(400):
    step()
    if n % 3 == 0:
        step(optimizer=second)
    time.sleep(0.003)
"""
    real.whole(text)
    told = real.world.last()
    assert told["steps"] == 400
    assert min(told["step_s"], told["step_p95_s"]) >= 0.003
    assert told["pools"] == []


LOADER = f"""{NET}
import threading

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, n):
        time.sleep(0.02)  # slow
        return torch.ones(8)

if __name__ == "__main__":
    begin()
    waits = []
    is_seen = lambda found: found["waits_for"] == "data" and found["data_wait_percent"] > 20
    looks = threading.Thread(target=lambda: waits.append(told(is_seen)))
    looks.start()
    for rows in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2):  # loop
        step(rows)
    looks.join()
    print(json.dumps(waits))
"""


def test_a_slow_loader_of_worker_processes_is_seen_with_its_line(real):
    (told,) = json.loads(real.whole(LOADER))
    assert told["place"] == f"{line_of(LOADER, '# loop')} _BaseDataLoaderIter.__next__"
    files = [json.loads(path.read_text()) for path in real.world.files()]
    loaders = [each for each in files if "worker" in each]
    assert max(each.get("steps", 0) for each in files) >= 200
    assert sorted(each["worker"] for each in loaders) == [0, 1]
    assert line_of(LOADER, "# slow") in {each["place"] for each in loaders}


def test_a_recording_has_steps_waits_and_their_line(real):
    """`gpumon record --probe` around real PyTorch, from its command line to its file."""
    text = LOADER.replace("num_workers=2", "num_workers=0")
    (real.world.folder / "train.py").write_text(text.replace("    begin()\n", "    step()\n"))
    file = str(real.world.folder / "run.gpumon")
    done = gpumon(
        *("record", "--probe", "-o", file, "--", real.python, "train.py"),
        env=environment(TMPDIR=str(real.world.folder), **QUIET), cwd=real.world.folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "gpumon: the probe measured inside 1 process\n" in done.stderr
    with Recording(file) as recording:
        samples = [item for item in recording.items() if isinstance(item, Sample)]
    rows = [row for item in samples for row in item.rows.get("program", {}).values()]
    slow = line_of(text, "# slow").replace("program.py", "train.py")
    assert rows[-1]["steps"] == 201
    assert rows[-1]["step_us"] >= 40_000
    assert rows[-1]["data_wait_percent"] > 50
    assert slow in {row["place"] for row in rows}


def test_a_fork_and_a_spawned_process_have_counts_of_their_own(real):
    text = f"""{NET}
import multiprocessing

def work(least):
    begin()
    for n in range(least):
        step()

if __name__ == "__main__":
    begin()
    for way in ("fork", "spawn"):
        child = multiprocessing.get_context(way).Process(target=work, args=(40,))
        child.start()
        child.join()
        assert child.exitcode == 0
"""
    real.whole(text)
    assert sum(json.loads(path.read_text())["steps"] > 40 for path in real.world.files()) >= 2
    assert len(real.world.files()) == 3


#: programs that end in several ways, and print what they computed
FELT = {
    "torch": """
import torch, sys, warnings
torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(net.parameters())
for rows in torch.utils.data.DataLoader(torch.randn(600, 8), num_workers=4, shuffle=True):
    optimizer.zero_grad()
    loss = net(rows).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
warnings.warn("mine")
sys.exit(7)
""",
    "torch.compile": """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(net.parameters())
@torch.compile(backend="eager")
def step():
    optimizer.step()
for n in range(20):
    net(torch.ones(1, 8)).sum().backward()
    step()
print(net.weight.tolist(), torch._dynamo.utils.counters["stats"])
raise SystemExit(7)
""",
    "jax": """
import jax
def loss(w, x):
    return ((x @ w) ** 2).mean()
w = jax.numpy.ones(8)
slope = jax.jit(jax.grad(loss))
for n in range(3000):
    w -= 0.01 * slope(w, jax.numpy.ones((4, 8)) / (n + 1))
print(w.tolist(), flush=True)
raise ValueError("mine")
""",
    "tensorflow": """
import os, tensorflow as tf
tf.random.set_seed(0)
w = tf.Variable(tf.ones([8, 1]))
optimizer = tf.keras.optimizers.Adam()
for n in range(200):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.random.normal([4, 8]) @ w) ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, w), w)])
print(w.numpy().tolist(), flush=True)
os._exit(5)
""",
}


@pytest.mark.parametrize("name", FELT)
def test_a_program_prints_and_ends_as_without_the_probe(real, name):
    quiet = {"TORCH_LOGS": "-all"}  # its lines have the time and the number of the process
    found = real.run(FELT[name], "-W", "always", **quiet)
    assert found == real.run(FELT[name], "-W", "always", probed=False, **quiet)
    assert found[0] == {"jax": 1, "tensorflow": 5}.get(name, 7)
    assert found[1]


#: what the probe asks of each, before and after it has begun
ASKED = {
    "torch": """
import torch
print(list(probe._torch(torch)), torch.cuda.is_initialized())
torch.cuda.memory_stats_as_nested_dict, torch.cuda.get_device_properties, torch.cuda.device_count
""",
    "jax": """
import jax
print(list(probe._jax(jax)), bool(jax._src.xla_bridge._backends))
device = jax.local_devices()[0]
device.memory_stats, device.local_hardware_id
print(list(probe._jax(jax)))
""",
    "tensorflow": """
import tensorflow
from tensorflow.python.eager import context
print(list(probe._tensorflow(tensorflow)), context._context is not None)
tensorflow.constant(1.0)
print(context._context._initialized, list(probe._tensorflow(tensorflow)))
print(*sorted(tensorflow.config.experimental.get_memory_info("CPU:0")))
print([each.name for each in tensorflow.config.get_visible_devices("CPU")])
""",
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torch", "[] False\n"),
        ("jax", "[] False\n[]\n"),
        ("tensorflow", "[] False\nTrue []\ncurrent peak\n['/physical_device:CPU:0']\n"),
    ],
)
def test_it_begins_nothing_and_finds_what_it_asks_for(real, name, said):
    allocator = {"TF_ENABLE_ONEDNN_OPTS": "1"}  # the one on a CPU that has figures
    begin = f"import sys; sys.path.append({probing.INSIDE!r}); import gpumon_looks as probe"
    assert real.whole(f"{begin}\n{ASKED[name]}", **allocator) == said


#: a program that ends once nothing is left to do, as servers do
GREEN = {
    "gevent": "import gevent, gevent.monkey\npatch, wait = gevent.monkey.patch_all, gevent.wait",
    "eventlet": "import warnings; warnings.simplefilter('ignore')\nimport eventlet\n"
    "patch, wait = eventlet.monkey_patch, lambda: eventlet.sleep(0.3)",
}
TRAINS = """
import os, time, torch
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters())
def step():
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("name", GREEN)
def test_a_program_with_green_threads_ends_as_without_it(real, name, is_first):
    patch = f"{GREEN[name]}\npatch()\n"
    before, after = (patch, "") if is_first else ("", f"step(); time.sleep(1)\n{patch}")
    text = f"{before}{TRAINS}{after}for n in range(9):\n    step()\n    time.sleep(0.05)\n"
    text += "wait()\nchild = os.fork()\nif not child:\n    os._exit(3)\n"
    text += "print(os.waitpid(child, 0)[1], flush=True)\nwait()"
    assert real.run(text)[:2] == (0, b"768\n")
