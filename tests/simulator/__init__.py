"""Jobs made from the physics of programs, with labels from what was simulated.

A program is what its GPUs, cores, memory and disks truly do, segment by segment; a job runs it
with a request until it ends or is killed; a recording shows it through sampling, gaps and missing
counters; the truth says what the job needed, when which GPU did nothing, and why. Nothing here
reads the rules or their thresholds.
"""
