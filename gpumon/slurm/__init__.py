"""Slurm: running its commands, parsing their output, one typed job."""
