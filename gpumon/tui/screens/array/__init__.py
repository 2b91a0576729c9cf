"""An array of jobs: a row for each task, the worst first."""
