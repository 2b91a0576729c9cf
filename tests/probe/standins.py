"""Packages with the interfaces of PyTorch, JAX and TensorFlow that the probe reads.

They show what only a GPU could: each refuses to be asked before it has initialised a device, as
the real ones would initialise one. They prove the arithmetic alone, not what a framework answers.
"""

from pathlib import Path

TORCH = {
    "torch/__init__.py": """
from torch import cuda, optim
""",
    "torch/cuda.py": """
_begun, used, reserved = False, {}, {}

class _Properties:
    uuid = "11111111-2222-3333-4444-555555555555"

def init():
    global _begun
    _begun = True

def hold(device, allocated, kept):
    for table, value in ((used, allocated), (reserved, kept)):
        _, peak = table.get(device, (0, 0))
        table[device] = value, max(peak, value)

def reset_peak_memory_stats(device):
    for table in (used, reserved):
        table[device] = (table[device][0],) * 2

def is_initialized():
    return _begun

def device_count():
    assert _begun, "this would initialise"
    return 2

def get_device_properties(device):
    assert _begun, "this would initialise"
    return _Properties

def memory_stats_as_nested_dict(device):
    assert _begun, "this would initialise"
    def both(table):
        current, peak = table.get(device, (0, 0))
        return {"all": {"current": current, "peak": peak}}
    return {"allocated_bytes": both(used), "reserved_bytes": both(reserved),
            "num_alloc_retries": 3, "num_ooms": 0}
""",
    "torch/optim/__init__.py": """
from torch.optim import optimizer
""",
    "torch/optim/optimizer.py": """
from collections import OrderedDict

_global_optimizer_post_hooks = OrderedDict()

def register_optimizer_step_post_hook(hook):
    _global_optimizer_post_hooks[len(_global_optimizer_post_hooks)] = hook

class Optimizer:
    def step(self):
        for hook in _global_optimizer_post_hooks.values():
            hook(self, (), {})
""",
    "torch/utils/data/__init__.py": """
_worker_info = None

class _Info:
    def __init__(self, id):
        self.id = id

def get_worker_info():
    return _worker_info

def worker_loop(dataset, indices, id):
    global _worker_info
    _worker_info = _Info(id)
    for index in iter(indices.get, None):
        dataset[index]
""",
    "torch/utils/data/dataloader.py": """
import time

class Iter:
    def __iter__(self):
        return self
    def __next__(self):
        time.sleep(0.05)
""",
}
JAX = {
    "jax/__init__.py": """
from jax._src import xla_bridge

class _Device:
    id, platform, local_hardware_id = 8, "gpu", 0
    def memory_stats(self):
        return {"bytes_in_use": 5 << 30, "peak_bytes_in_use": 6 << 30, "bytes_limit": 60 << 30,
                "pool_bytes": 60 << 30}

def local_devices():
    assert xla_bridge.begun, "this would initialise"
    return [_Device()]
""",
    "jax/_src/__init__.py": "",
    "jax/_src/xla_bridge.py": """
begun = False

def backends_are_initialized():
    return begun
""",
}
TENSORFLOW = {
    "tensorflow/__init__.py": """
from tensorflow.python.eager import context

class _Physical:
    def __init__(self, number):
        self.name = "/physical_device:GPU:%d" % number

class config:
    chosen, divided = [0], 1

    @staticmethod
    def get_visible_devices(kind):
        return [_Physical(number) for number in config.chosen]
    @staticmethod
    def list_logical_devices(kind):
        assert context._context._initialized, "this would initialise"
        return ["/device:GPU:%d" % n for n in range(config.divided * len(config.chosen))]
    class experimental:
        @staticmethod
        def get_memory_info(device):
            assert device == "GPU:0"
            return {"current": 7 << 30, "peak": 9 << 30}
""",
    "tensorflow/python/__init__.py": "",
    "tensorflow/python/eager/__init__.py": "",
    "tensorflow/python/eager/context.py": """
class _Context:
    _initialized = False

_context = _Context()
""",
}


def plant(folder: Path, *packages: dict[str, str]) -> Path:
    """Write them into a folder for PYTHONPATH."""
    for package in packages:
        for name, text in package.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder
