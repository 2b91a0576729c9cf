"""Why a program leaves a GPU idle: one that fell back to the CPU looks like one without need."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.finding import Action
from gpumon.analysis.rightsize.requested import requested
from gpumon.analysis.rundata import DeviceData, RunData
from gpumon.analysis.signals import is_server, job_processes
from gpumon.model.lines import EMPTY, Line

_SEES_GPU = Line("python -c 'import torch; print(torch.cuda.is_available())'")
#: of a framework that holds a GPU: where the program's own data is
_WHERE = {
    "torch": Line("print(next(model.parameters()).device)"),
    "tf": Line("tf.debugging.set_log_device_placement(True)"),
    "jax": Line("print(jax.devices())"),
}


def no_gpu(run: RunData) -> Action:
    """In words: a program that does not find the GPU cannot be told from one that needs none."""
    option = requested(run).gpu_option
    text = f"If the program needs no GPU, remove {option} and use a partition without GPUs."
    return Action("shell", EMPTY, text=text)


def software_check(run: RunData, devices: Sequence[DeviceData] = ()) -> Action:
    """What to look at first: whether the program sees a GPU; what it does with one that it holds.

    The line is for Python; none where the job's processes are known, and no Python is among them.
    """
    if any(map(is_server, devices)):
        return Action("shell", EMPTY, text="Stop a server that receives no requests.")
    tags = {tag for device in devices for each in job_processes(device) for tag in each.frameworks}
    if tags & _WHERE.keys():
        line = next(line for tag, line in _WHERE.items() if tag in tags)
        return Action("code", line, text="First check that the model and its data are on the GPU.")
    facts = [facts for node in run.nodes for facts, _ in node.processes.values()]
    is_python = any("python" in f"{each.name} {each.command}" for each in facts)
    text = "First check that the program sees a GPU (in Apptainer it needs --nv)."
    if facts and not is_python:
        return Action("shell", EMPTY, text=text.replace("check", "check in its output"))
    return Action("shell", _SEES_GPU, text=text)
