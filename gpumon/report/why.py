"""Why each finding matters to the user, in one sentence: what it costs, or what it puts at risk.

The finding itself says what was measured and what to do; a test holds this table to the catalogue.
"""

from __future__ import annotations

_GPU_HELD = "A GPU that is held and does not work keeps others waiting, and your own next job too."
_GPU_SLOW = "The GPU is paid for in full and does a part of what it could."
_RESERVED = "So the figure says nothing of how large a GPU, or a batch, the program needs."
_CORES_HELD = "Cores that are asked for and idle make the job wait longer before it starts."
_MEM_HELD = "Memory that is asked for and unused keeps jobs, your own too, off the node."
_HARDWARE = "The fault is the node's: the next job on it suffers too."
_TIME = "The scheduler fits short jobs into gaps: a limit near the need starts earlier."

WHY = {
    "gpu-never-used": _GPU_HELD,
    "gpu-allocated-no-process": _GPU_HELD,
    "gpus-partly-idle": _GPU_HELD,
    "gpu-idle-now": _GPU_HELD,
    "policy-kill-soon": "The site ends jobs whose GPUs are idle; what is not saved is lost.",
    "idle-tail": _GPU_HELD,
    "jupyter-idle": _GPU_HELD,
    "nodes-idle": "A node that does nothing is waited for and charged like one that works.",
    "low-busy": _GPU_SLOW,
    "low-sm": "Busy only says that some kernel ran; most of the chip stood still meanwhile.",
    "low-power-high-busy": "A GPU that is busy at little power waits inside its kernels.",
    "no-tensor": "The tensor cores are several times as fast as the pipes that were used.",
    "suspected-hang": "A job that hangs holds its GPUs until its time limit.",
    "input-bound": "The GPU waits for data; a faster GPU would wait as well.",
    "host-stall": "The GPU waits for one thread on the CPU; a faster GPU would wait as well.",
    "comm-bound": "Busy is communication here: more GPUs add less and less.",
    "gpu-imbalance": "All GPUs wait for the slowest at each step.",
    "straggler": "All GPUs wait for the slowest at each step.",
    "alloc-all-tf": _RESERVED,
    "alloc-all-jax": _RESERVED,
    "alloc-all-kv": _RESERVED,
    "alloc-all-pool": _RESERVED,
    "gpu-mem-full": "A slightly larger input would end the program with out of memory.",
    "gpu-oom-suspect": "The process did not end by itself; its work may be lost.",
    "gpu-mem-headroom": "A larger batch often uses the GPU better at no cost.",
    "smaller-gpu": "Smaller GPUs have shorter queues, and leave the large one to who needs it.",
    "gpu-type-scarce": "The same work would start sooner on a type that nobody waits for.",
    "gpu-leak": "Memory that only grows ends in out of memory.",
    "leftover-procs": "What a dead run left holds memory that your program lacks.",
    "foreign-proc": "Two who share a GPU slow each other down.",
    "cpu-never-used": "A job that does nothing still counts against your share.",
    "cpu-low": _CORES_HELD,
    "cpu-underused": _CORES_HELD,
    "serial-many-cores": "The other cores did nothing and made the job wait longer for its start.",
    "cpu-starved": "Threads waited for a core: the run took longer than it needs to.",
    "cpu-oversubscribed": "More threads than cores slow each other down.",
    "cores-per-gpu-high": "The node's other GPUs stay empty for want of cores.",
    "numa-mismatch": "Data to the GPU takes the long way between the sockets.",
    "mem-over": _MEM_HELD,
    "mem-per-gpu-high": "The node's other GPUs stay empty for want of memory.",
    "mem-near-limit": "At the limit the kernel kills the job; what is not saved is lost.",
    "oom-killed": "The kernel killed the process: what it had not saved is lost.",
    "host-leak": "Memory that only grows ends at the limit, where the kernel kills the job.",
    "swap-io": "The job waited for the disk instead of computing.",
    "time-short": "At the limit Slurm ends the job; what is not saved is lost.",
    "time-over": _TIME,
    "timed-out": "What the job had not saved by then is lost.",
    "ended-badly": "Its results may be missing or incomplete.",
    "throttle-thermal": "A hot GPU lowers its clocks: the run takes longer.",
    "throttle-power": "At its power limit a GPU lowers its clocks: the run takes longer.",
    "gpu-health": _HARDWARE,
    "pcie-degraded": _HARDWARE,
    "scratch-full": "When it is full the next write fails, and often the job with it.",
    "home-cache": "A full home ends programs, and logins, in odd ways.",
    "frag-nodes": "GPUs on one node talk faster than across the network.",
    "few-cores-per-node": "Tasks on one node talk faster and leave whole nodes to others.",
    "array-mem-over": f"{_MEM_HELD} An array multiplies it.",
    "array-time-over": _TIME,
    "array-cpu-over": f"{_CORES_HELD} An array multiplies it.",
    "array-gpu-idle": _GPU_HELD,
    "array-outlier": "The request follows the largest task; the others could do with less.",
    "array-mixed-outcome": "Only these tasks have to run again.",
    "requeued": "An attempt that was cut short used less than a whole run needs.",
    "job-pending": "Until it starts it costs nothing, and nothing can be measured.",
    "data-stale": "What it did since then is not known.",
    "gpu-unreadable": "What it did cannot be judged in full.",
    "wrong-job": "Figures of another job would mislead you.",
    "low-coverage": "What happened in the rest of the run is not known.",
    "accounting-mismatch": "Both are right in what they count; compare like with like.",
}
