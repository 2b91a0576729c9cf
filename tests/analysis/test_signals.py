"""Which jobs are sessions of people, by their programs and names."""

import pytest

from gpumon.analysis.signals import is_interactive
from gpumon.model.sample import Process
from gpumon.slurm.job import Job
from tests.analysis.build import evidence, node, track


def running(*commands, **facts):
    processes = {}
    for pid, command in enumerate(commands, 4312):
        name = command.split()[0].rpartition("/")[2]
        made = Process(pid, user="ada", name=name, command=command, own=True, in_job=True)
        processes[pid] = (made, track([1.0]))
    return evidence(1, nodes=[node(1, processes=processes)], job=Job(raw_id="4711", **facts))


@pytest.mark.parametrize(
    "command",
    [
        "rserver --www-port 8787",
        "/usr/lib/rstudio-server/bin/rsession --standalone=1",
        "/opt/conda/bin/python /opt/conda/bin/jupyterhub-singleuser --ip=0",
        "python -m jupyter lab --no-browser",
        "jupyter-lab --port 8888",
        "code tunnel --name gpu",
        "/usr/lib/code-server/lib/node /usr/lib/code-server",
        "/usr/bin/Xvnc :1 -geometry 1600x900",
        "python -m ipykernel_launcher -f kernel.json",
    ],
)
def test_a_program_that_people_work_in_makes_a_session(command):
    assert is_interactive(running("bash job.sh", command), [])


@pytest.mark.parametrize(
    "commands",
    [
        ("python train.py --data /scratch/jupyter",),
        ("Rscript model.R",),
        ("Xvfb :99", "blender -b scene.blend"),
        ("python train.py", "node /home/ada/.vscode-server/bin/4711/server.js"),
        ("jupyter nbconvert --execute a.ipynb", "python -m ipykernel_launcher -f kernel.json"),
    ],
)
def test_batch_work_is_none(commands):
    assert not is_interactive(running(*commands), [])


@pytest.mark.parametrize(
    ("name", "is_session"),
    [("spawner-jupyterhub", True), ("rstudio_server", True), ("vnc-desktop", True),
     ("sys/dashboard/sys/bc_desktop", True), ("infer-server", False), ("goodness", False)],
)  # fmt: skip
def test_the_name_of_a_job_may_say_so(name, is_session):
    assert is_interactive(running(name=name), []) is is_session
