"""The table of processes."""
