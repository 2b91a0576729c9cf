"""Options of a submit line, as sbatch reads them."""

import pytest

from gpumon.slurm import sacct
from gpumon.slurm.options import options_of_submit_line, submitted_gpus, submitted_script
from tests.slurm.made import row


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("-c4 -n 8 -N2", {"cpus-per-task": "4", "ntasks": "8", "nodes": "2"}),
        ("-t1:00:00 -p gpu -G a100:2", {"time": "1:00:00", "partition": "gpu", "gpus": "a100:2"}),
        ("-J -c4 --mem 4G", {"mem": "4G"}),  # a job called -c4
        ("--mem=4G --mem=8G", {"mem": "8G"}),
        ("--mem=4G --mem-per-cpu=2G", {"mem-per-cpu": "2G"}),
        ("--mem-per-gpu=8G -c 2 --mem=4G", {"cpus-per-task": "2", "mem": "4G"}),
        ("--gres=gpu:a100:2,shard:1", {"gres": "gpu:a100:2,shard:1"}),
        ("--gpus-per-task=1 --exclusive", {"gpus-per-task": "1", "exclusive": ""}),
        ("-Hc4", {"cpus-per-task": "4"}),
    ],
)
def test_options_of_a_submit_line(line, options):
    assert options_of_submit_line(f"sbatch {line} job.sh --mem=1G") == options
    assert submitted_script(f"sbatch {line} job.sh --mem=1G") == "job.sh"


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("--gres=gpu:a100:2", {"a100": 4}),
        ("--gres tmp:10G,gpu:2", {"": 4}),
        ("-G a100:3", {"a100": 3}),
        ("--gpus-per-node=h100:1,a100:1", {"h100": 2, "a100": 2}),
        ("--gpus-per-task=1 -n 6", {"": 6}),
        ("--gpus-per-task=1", {}),  # of how many tasks is not known
        ("--gres=tmp:10G", {}),
        ("--gres=gpu:0", {}),
        ("job.sh --gpus=8", {}),
        ("-c 8 --wrap=python train.py --gpus 8", {}),
        ("-N1 --gres=gpu:1 : -N2 -c4", {}),
    ],
)
def test_gpus_of_a_submit_line(line, gpus):
    assert submitted_gpus(f"sbatch {line} job.sh", nodes=2) == gpus


def test_gpus_are_known_where_the_site_does_not_count_them():
    tres = "billing=8,cpu=8,mem=64G,node=1"
    named = row(17, alloctres=tres, reqtres=tres, submitline="sbatch --gres=gpu:a100:2 job.sh")
    assert sacct.job(named, None).gpus == 2
    assert sacct.job(named, None).requested.resources.gpu_types == {"a100": 2}
    counted = named | {"reqtres": f"{tres},gres/gpu=1"}
    assert sacct.job(counted, None).gpus == 1
