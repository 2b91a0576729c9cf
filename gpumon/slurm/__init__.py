"""What Slurm says: running its commands, parsing their output, one typed job."""
