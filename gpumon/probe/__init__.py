"""The probe: what only a program's own Python knows of its GPU memory and its steps.

`inside/gpumon_probe.py` runs in the user's Python and writes a small file, which the agent reads
(`collect/proc/probed.py`). Neither imports the other: they share the names in the file
(docs/probe.md).
"""
