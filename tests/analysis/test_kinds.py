"""Kinds of programs, by what their processes are called and which libraries they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.kinds import Kind, kind_of, kind_of_process, learns
from gpumon.model.sample import Process
from tests.analysis.build import GIB, device, evidence, node, process, track


def named(command, name="", framework=""):
    program = command.split()[0].rpartition("/")[2] if command else ""
    return Process(7, "ada", command, name or program, in_job=True, framework=framework)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("gmx mdrun -deffnm md", Kind.DYNAMICS),
        ("/opt/gromacs/bin/gmx_mpi mdrun", Kind.DYNAMICS),
        ("pmemd.cuda -O -i prod.in", Kind.DYNAMICS),
        ("namd3 +p8 in.conf", Kind.DYNAMICS),
        ("lmp -k on g 1 -in in.lj", Kind.DYNAMICS),
        ("python run_openmm.py", Kind.DYNAMICS),
        ("/home/ada/vasp.6/bin/vasp_std", Kind.SOLVER),
        ("pw.x -in scf.in", Kind.SOLVER),
        ("cp2k.psmp in.inp", Kind.SOLVER),
        ("simpleFoam -parallel", Kind.SOLVER),
        ("blender -b scene.blend -a", Kind.RENDERING),
        ("ffmpeg -i in.mp4 out.mkv", Kind.ENCODING),
        ("python -u train_ppo.py --steps 1000", Kind.REINFORCEMENT),
        ("python -m cleanrl.ppo_atari", Kind.REINFORCEMENT),
        ("ray::RolloutWorker.sample()", Kind.REINFORCEMENT),
        ("python train.py --data /data/gromacs/vasp", Kind.UNKNOWN),
        ("cp -r data /tmp", Kind.UNKNOWN),
        ("ph data", Kind.UNKNOWN),
        ("", Kind.UNKNOWN),
    ],
)
def test_by_name(command, kind):
    assert kind_of_process(named(command)) is kind


def test_a_name_says_more_than_a_library():
    assert kind_of_process(named("python train.py", framework="torch")) is Kind.LEARNING
    assert kind_of_process(named("python run_openmm.py", framework="torch")) is Kind.DYNAMICS
    assert kind_of_process(named("python train.py", framework="cuda-other")) is Kind.UNKNOWN


def test_libraries_tell_what_a_script_is_for():
    simulates = named("python train.py", framework="torch")._replace(
        hints={"purpose": "environments"}
    )
    assert kind_of_process(simulates) is Kind.REINFORCEMENT
    odd = named("python train.py", framework="torch")._replace(hints={"purpose": "x dynamics"})
    assert kind_of_process(odd) is Kind.DYNAMICS


def of(**facts):
    return evidence(6, [device(6, processes=[process(6, mem=GIB, **facts)])])


def test_the_kind_of_a_run():
    assert learns(of(framework="jax"))
    assert kind_of(of(framework="vllm", command="vllm serve m")) is Kind.SERVING
    assert kind_of(of(framework="torch", command="python sac.py")) is Kind.REINFORCEMENT
    assert kind_of(evidence(6)) is Kind.UNKNOWN
    assert kind_of(of(framework="torch", in_job=False, own=False)) is Kind.UNKNOWN


def test_processes_on_the_cores_tell_by_name_alone():
    beside = {9: (named("ray::RolloutWorker", framework="torch"), track(90, 6))}
    this = evidence(6, of(framework="torch").devices, [node(6, processes=beside)])
    assert kind_of(this) is Kind.REINFORCEMENT
    beside = {9: (named("python prepare.py", framework="torch"), track(90, 6))}
    assert kind_of(evidence(6, nodes=[node(6, processes=beside)])) is Kind.UNKNOWN


@given(st.text(max_size=80), st.text(max_size=20), st.text(max_size=10))
def test_any_text_has_a_kind(command, name, framework):
    assert isinstance(kind_of_process(Process(7, "", command, name, framework=framework)), Kind)
