"""gpumon: a terminal dashboard for GPUs and jobs on Slurm clusters."""

__version__ = "0.1.0"
