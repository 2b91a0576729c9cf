"""What to do, by the kind of program: a larger batch is advice for few of them."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.finding import Action, to_do, to_write
from gpumon.analysis.kinds import Kind, kind_of
from gpumon.analysis.rightsize.requested import Requested, requested
from gpumon.analysis.rules.phrasing import gpus_text
from gpumon.analysis.rules.waited_for import WaitedFor
from gpumon.analysis.rundata import DeviceData, NodeData, RunData
from gpumon.analysis.signals import is_server, job_processes
from gpumon.model.lines import EMPTY, Line, word
from gpumon.model.units import plural

#: a process counts as one that computes with this part of the busiest one's CPU use, and of a core
_COMPUTES_SHARE, _COMPUTES_PERCENT = 0.5, 2.0
#: part of the cores that the threads which are advised must use
_MOST_CORES = 0.9
#: of data to the node's own disk; never into / where TMPDIR is not set
COPY_HERE = Line('cp -r DATA "${TMPDIR:?}"/')
_DIVIDE = "Set OMP_NUM_THREADS to the number of cores divided by the number of processes."


def more_work(
    run: RunData, devices: Sequence[DeviceData], others: WaitedFor | None = None
) -> tuple[Action, ...]:
    """For GPUs that are busy and do little.

    Where they wait for others (collectives, pipelines), more work at a time would only make those
    slower.
    """
    if others is not None and others.devices:
        name = gpus_text(run, others.devices)
        text = f"These GPUs wait for {name}: find out why the work there takes longer."
        if others.in_phases:
            text = (
                f"Find out what {name} did in that time (validation, saving): divide it among all "
                "GPUs, or run it as a job of its own."
            )
        return (to_write(text),)
    smaller = Action("sbatch", EMPTY, text="Or request a smaller GPU or a MIG slice.")
    kind = kind_of(run, devices)
    if kind is Kind.LEARNING and len({each.node for each in devices}) > 1:
        text = (
            "They may wait for messages of other nodes: compare the run time on one node, and "
            "exchange gradients less often."
        )
        return (to_write(text),)
    if kind is Kind.LEARNING:
        text = "Give the GPU more work per step: a larger batch, mixed precision, fused kernels."
        tags = {tag for each in devices for p in job_processes(each) for tag in p.frameworks}
        line = Line("model = torch.compile(model)") if "torch" in tags else EMPTY
        return Action("code", line, text=text), smaller
    return to_write(_MORE_WORK.get(kind, _PROFILE)), smaller


_PROFILE = "Profile the program to see what limits it."
_MORE_WORK = {
    Kind.SERVING: "Serve more requests at once, or several models on this GPU.",
    Kind.REINFORCEMENT: "Run more environments at once, or run the simulation on the GPU.",
    Kind.DYNAMICS: "Run several simulations on this GPU at once (gmx mdrun -multidir, or MPS).",
    Kind.SOLVER: "Compare the run time on fewer GPUs; use fewer processes per GPU, or MPS.",
}


# -- cores and threads -----------------------------------------------------------------------------


AS_MANY = "Request as many cores as the program has processes and threads that compute."


def share_the_node(request: Requested) -> str:
    """To a job with a node for itself, of which it cannot give back some cores alone."""
    if request.is_exclusive:
        return "If the job can share the node, leave out --exclusive, which reserves all cores."
    return "If the job can share the node, leave out --mem=0, which reserves all memory."


def fewer_threads(run: RunData, node: NodeData) -> Action:
    """`export OMP_NUM_THREADS=` the node's cores ÷ its processes that compute."""
    count = processes_on(run, node)
    if not node.cpus or not count:
        return Action("export", EMPTY, text=_DIVIDE)
    if count > node.cpus:
        text = f"Start at most {node.cpus} processes on {node.cpus} cores, with one thread each."
        return Action("export", Line("export OMP_NUM_THREADS=1"), text=text)
    threads = node.cpus // count
    if threads * count < _MOST_CORES * node.cpus:
        text = f"Start a number of processes that divides {node.cpus} cores evenly. {_DIVIDE}"
        return Action("export", EMPTY, text=text)
    text = (
        f"Give each process {plural(threads, 'thread')}: {plural(node.cpus, 'core')} for "
        f"{plural(count, 'process', 'es')}."
    )
    return Action("export", Line("export OMP_NUM_THREADS={}", threads), text=text)


def processes_on(run: RunData, node: NodeData) -> int | None:
    """Processes that compute on a node: those seen at work, but no fewer than Slurm's tasks."""
    request = requested(run)
    tasks = request.tasks_per_node or (request.tasks or 0) // request.nodes
    means = [used for _, cpu in node.processes.values() if (used := cpu.average()) is not None]
    least = max(_COMPUTES_PERCENT, _COMPUTES_SHARE * max(means, default=0.0))
    return max(tasks, sum(used >= least for used in means)) or None


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
    return to_do(text)


def software_check(run: RunData, devices: Sequence[DeviceData] = ()) -> Action:
    """What to look at first: whether the program sees a GPU; what it does with one that it holds.

    The line is for Python; none where the job's processes are known, and no Python is among them.
    """
    if any(map(is_server, devices)):
        return to_do("Stop a server that receives no requests.")
    tags = {tag for device in devices for each in job_processes(device) for tag in each.frameworks}
    if tags & _WHERE.keys():
        line = next(line for tag, line in _WHERE.items() if tag in tags)
        return Action("code", line, text="First check that the model and its data are on the GPU.")
    facts = [facts for node in run.nodes for facts, _ in node.processes.values()]
    is_python = any("python" in f"{each.name} {each.command}" for each in facts)
    text = "First check that the program sees a GPU (in Apptainer it needs --nv)."
    if facts and not is_python:
        return to_do(text.replace("check", "check in its output"))
    if not run.live or run.job is None:
        return Action("shell", _SEES_GPU, text=text.replace("check", "check in the job"))
    where = Line("srun --jobid={} --overlap --mem=0 -n1", word("job", run.job.raw_id))
    return Action("shell", Line("{} {}", where, _SEES_GPU), text=text)
