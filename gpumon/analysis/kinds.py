"""Which kind of program a job runs: what is good advice for one kind is wrong for another.

The kind follows from the names of its processes (`gmx mdrun`, `python train_ppo.py`) and from the
libraries that the collector found in them. A name counts only as the program itself or its script:
a data directory called `gromacs` makes no simulation of a training. Of a program that nobody knows
the kind is UNKNOWN, for which advice stays neutral.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum

from gpumon.analysis.once import once
from gpumon.analysis.rundata import DeviceData, NodeData, RunData
from gpumon.analysis.signals import is_server, job_devices, job_processes
from gpumon.model.sample import Process


class Kind(Enum):
    """What a program does, as far as advice depends on it."""

    LEARNING = "deep learning"  # training, or inference over a data set
    SERVING = "serving"  # inference on request
    REINFORCEMENT = "reinforcement learning"  # simulators on cores feed a network
    DYNAMICS = "molecular dynamics"
    SOLVER = "solver"  # electronic structure, fluids, weather, linear algebra
    RENDERING = "rendering"
    ENCODING = "encoding"
    UNKNOWN = ""


#: names of programs, as whole words of a program's or script's name
_WORDS = {
    # what needs steps of simulators
    Kind.REINFORCEMENT: "rl ppo dqn sac a2c a3c ddpg td3 trpo impala rllib rollout rollouts "
    "rolloutworker envrunner selfplay muzero alphazero dreamer gym gymnasium mujoco isaacgym "
    "isaaclab brax atari ale procgen minigrid sb3 cleanrl sheeprl simulator",
    Kind.DYNAMICS: "gmx mdrun gromacs namd namd2 namd3 lmp lammps pmemd sander amber openmm acemd "
    "desmond charmm hoomd tinker9 spdyn atdyn dlpoly torchmd",
    Kind.SOLVER: "vasp pw cp ph neb cp2k abinit siesta nwchem orca gpaw octopus elk fluent cfx "
    "starccm su2 abaqus ansys nastran comsol xhpl hpl xhpcg petsc nek5000 wrf cesm icon mpas "
    "openfoam elmer yambo berkeleygw chroma quda milc gadget arepo athena enzo flash",
    Kind.RENDERING: "blender kick arnold vray redshift octane mantra husk prman luxcore povray",
    Kind.ENCODING: "ffmpeg ffprobe handbrakecli gst x264 x265 aomenc svtav1encapp nvencc",
}
_KIND_OF_WORD = {word: kind for kind, words in _WORDS.items() for word in words.split()}
#: `vasp_std`, `gmx_mpi`, `simpleFoam`, `pw.x`, `lmp_gpu`, `train-ppo.py`, `ray::RolloutWorker`
_WORD = re.compile(r"[a-z0-9]+")
_FOAM = re.compile(r"[a-z]+Foam$")
#: pw, cp, ph and so on are other programs' names too, without Quantum ESPRESSO's ending
_ONLY_WITH_X = frozenset(("pw", "cp", "ph", "neb", "flash", "elk"))
_INTERPRETER = re.compile(r"python[\d.]*|perl|julia|Rscript|bash|sh")
#: what the collector found in a process's libraries (`collect.proc.frameworks`)
_KIND_OF_PURPOSE = {
    "environments": Kind.REINFORCEMENT, "dynamics": Kind.DYNAMICS, "solver": Kind.SOLVER,
}  # fmt: skip
#: frameworks whose programs learn or infer, where nothing else is known of them
_LEARNING = frozenset(("torch", "tf", "jax"))
#: the first known of these is the job's kind: a trainer of a force field uses PyTorch too
_ORDER = (
    Kind.DYNAMICS, Kind.SOLVER, Kind.RENDERING, Kind.ENCODING, Kind.SERVING, Kind.REINFORCEMENT,
    Kind.LEARNING,
)  # fmt: skip


def kind_of_process(process: Process) -> Kind:
    """By its name, then by its libraries."""
    named = _first(_named(process))
    if named is not Kind.UNKNOWN:
        return named
    purposes = process.hints.get("purpose", "").split()
    told = _first(_KIND_OF_PURPOSE[each] for each in purposes if each in _KIND_OF_PURPOSE)
    if told is not Kind.UNKNOWN:
        return told
    return Kind.LEARNING if process.framework in _LEARNING else Kind.UNKNOWN


def kind_of_device(device: DeviceData) -> Kind:
    """Of the job's processes on a device."""
    return _kind_of_device(device)


@once
def _kind_of_device(device: DeviceData) -> Kind:
    if is_server(device):
        return Kind.SERVING
    processes = job_processes(device)
    kinds = [kind_of_process(each.facts) for each in processes]
    if any(_LEARNING & {*each.frameworks, each.facts.framework} for each in processes):
        kinds.append(Kind.LEARNING)
    return _first(kinds)


def kind_of(run: RunData, devices: Iterable[DeviceData] | None = None) -> Kind:
    """Of the programs on these devices (None: the job's), and of those beside them on the cores."""
    shown = list(job_devices(run) if devices is None else devices)
    kinds = [kind_of_device(each) for each in shown]
    nodes = {each.node for each in shown}
    beside = [each for each in run.nodes if each.node in nodes or not shown]
    return _first([*kinds, *(kind for node in beside for kind in _beside(node))])


def learns(run: RunData, devices: Iterable[DeviceData] | None = None) -> bool:
    """Whether it trains a network, or infers over a data set: what has batches and loaders."""
    return kind_of(run, devices) is Kind.LEARNING


def _beside(node: NodeData) -> Iterator[Kind]:
    """Kinds of the processes that use its cores: by name alone, since the libraries of a process
    that is on no device prove nothing.
    """
    for facts, _ in node.processes.values():
        if facts.in_job or facts.own:
            yield from _named(facts)


def _named(process: Process) -> Iterator[Kind]:
    for name in _names(process):
        if _FOAM.match(name):
            yield Kind.SOLVER
        for word in _WORD.findall(name.lower()):
            if word in _KIND_OF_WORD and (word not in _ONLY_WITH_X or name.endswith(".x")):
                yield _KIND_OF_WORD[word]


def _names(process: Process) -> Iterator[str]:
    """The process's own name, its program's, and of an interpreter the script's or module's."""
    yield process.name
    words = process.command.split(maxsplit=12)[:12]
    if not words:
        return
    program = _base(words[0])
    yield program
    if not _INTERPRETER.fullmatch(program):
        return
    for at, word in enumerate(words[1:], 1):
        if word == "-m":
            yield from words[at + 1 : at + 2]
            return
        if not word.startswith("-"):
            yield _base(word)
            return


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _first(kinds: Iterable[Kind]) -> Kind:
    found = set(kinds)
    return next((kind for kind in _ORDER if kind in found), Kind.UNKNOWN)
