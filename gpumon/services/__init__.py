"""What commands do: find a job, open a run, make a report, wrap a command."""
