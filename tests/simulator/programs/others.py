"""Servers, molecular dynamics, reinforcement learning, notebooks, video, copying: one node."""

from __future__ import annotations

from random import Random

from tests.simulator import memory
from tests.simulator.job import Fate, Program, Request
from tests.simulator.loads import IDLE, Cores, Gpu, Node, Segment
from tests.simulator.machine import A40, A100, GIB, H100, MIG_10, RTX3090, V100, Board
from tests.simulator.programs.parts import (
    BF16,
    DECODE,
    FP32,
    FP64,
    MD,
    MIN,
    Kernel,
    alike,
    duration,
    load,
    quiet,
    request,
)

Drawn = tuple[str, Program, Request]


def _program(
    rng: Random, kind: str, segments: list[Segment], host: float, held: list[memory.Held],
    kernel: Kernel, **rest: object,
) -> Program:  # fmt: skip
    return Program(
        kind, segments, [memory.settles(rng, host, 60)], [[[each] for each in held]],
        kernels=kernel.limits, mem_sd=rng.uniform(0.003, 0.03), time_sd=rng.uniform(0.01, 0.06),
        **rest,
    )  # fmt: skip


# -- inference


def _server(rng: Random, gpu: Gpu, story: str, cores: float) -> tuple:
    """A server runs until its user cancels it."""
    board = rng.choice((A100, H100, A100))
    seconds = duration(rng, 1, 4)
    segments = [
        alike(rng.uniform(60, 200), "load", 1, quiet(1, 1.2, read=3e8)),
        alike(rng.uniform(20, 60), "capture", 1, Node((load(DECODE, 0.6),), Cores(1.2))),
        alike(seconds, "serve", 1, Node((gpu,), Cores(cores, threads=40), read=1e5)),
    ]
    host = rng.uniform(8, 30) * GIB
    held = memory.vllm(rng, rng.uniform(0.15, 0.6) * board.mem_bytes, board)
    program = _program(rng, "serve", segments, host, [held], DECODE, framework="vllm",
                       command="vllm serve meta-llama/Llama-3.1-8B", name="vllm")  # fmt: skip
    asked = request(rng, program, host, cpus=rng.choice((2, 4)), gpus=1, board=board)
    end = program.seconds - 1
    return story, program, asked, Fate(end, "CANCELLED", 0, 15)


def server_steady(rng: Random) -> tuple:
    gpu = load(DECODE, rng.uniform(0.6, 0.98), cycle_s=0.03)
    return _server(rng, gpu, f"LLM server, busy {gpu.busy:.0%}", 1.5)


def server_bursty(rng: Random) -> tuple:
    """Requests come at random; several minutes apart at most."""
    rate, length = rng.uniform(0.01, 0.04), rng.uniform(8, 16)
    gpu = load(DECODE, 0.0)._replace(requests_per_s=rate, request_s=length, busy=0.0)
    return _server(
        rng, gpu, f"LLM server, {rate * 60:.1f} requests a minute", rng.uniform(0.1, 1.1)
    )


def server_idle(rng: Random) -> tuple:
    """Nobody asks it anything."""
    return _server(rng, IDLE, "LLM server without requests", rng.choice((0.02, 1.02)))


def batch_inference(rng: Random) -> Drawn:
    board = rng.choice((A100, H100, A40, RTX3090))
    busy = rng.uniform(0.7, 0.97)
    gpu = load(BF16, busy, cycle_s=rng.uniform(0.05, 0.8))
    cores = 1.0 + rng.uniform(0.5, 3)
    node = Node((gpu,), Cores(cores, threads=8), read=5e7, write=2e6)
    segments = [alike(60, "load", 1, quiet(1, 1.0, read=3e8)),
                alike(duration(rng), "infer", 1, node)]  # fmt: skip
    host = rng.uniform(6, 24) * GIB
    held = memory.caching(rng, rng.uniform(0.4, 0.85) * board.mem_bytes, board)
    program = _program(rng, "infer", segments, host, [held], BF16, framework="torch",
                       command="python predict.py", workers=4)  # fmt: skip
    asked = request(rng, program, host, cpus=round(cores + 1), gpus=1, board=board)
    return f"batch inference, busy {busy:.0%}", program, asked


# -- simulations on GPUs


def molecular_dynamics(rng: Random) -> Drawn:
    """One GPU, little of its memory, a core or a few."""
    board = rng.choice((A100, A40, RTX3090, V100, H100))
    size = rng.uniform(0.5, 4) * GIB
    busy = rng.uniform(0.85, 0.99)
    cores = rng.choice((1.0, 1.0, 3.8, 7.6))
    node = Node((load(MD, busy, cycle_s=0.005),), Cores(cores, threads=round(cores + 0.3)),
                write=2e6)  # fmt: skip
    segments = [alike(duration(rng), "simulate", 1, node)]
    host = rng.uniform(0.6, 2.5) * GIB
    name = rng.choice(("gmx", "pmemd.cuda", "namd3"))
    program = _program(rng, "md", segments, host, [memory.direct(rng, size)], MD, name=name,
                       command=f"{name} mdrun -deffnm prod", rank_cores=cores)  # fmt: skip
    asked = request(rng, program, host, cpus=max(1, round(cores + 0.3)), gpus=1, board=board)
    return f"molecular dynamics on a GPU, {cores:.0f} cores", program, asked


def solver(rng: Random) -> Drawn:
    """Double precision on a GPU: VASP and the like."""
    board = rng.choice((A100, V100, H100))
    gpu = load(FP64, rng.uniform(0.75, 0.97), cycle_s=0.2)
    count = rng.choice((1, 2, 4))
    node = Node((gpu._replace(nvlink=2e9 * (count > 1)),) * count, Cores(count * 1.0), write=1e6)
    host = rng.uniform(4, 16) * GIB
    held = [memory.direct(rng, rng.uniform(0.3, 0.8) * board.mem_bytes) for _ in range(count)]
    program = _program(rng, "vasp", [alike(duration(rng), "solve", 1, node)], host, held, FP64,
                       command="vasp_std", name="vasp_std", ranks=count,
                       needs_ranks=True)  # fmt: skip
    asked = request(rng, program, host, cpus=count, gpus=count, board=board, tasks=count)
    return f"a double-precision solver on {count} GPUs", program, asked


def reinforcement(rng: Random) -> Drawn:
    """Environments on the cores feed a small network: the GPU can do little but wait."""
    envs = rng.choice((8, 16, 32))
    busy = rng.uniform(0.04, 0.25)
    node = Node((load(FP32, busy, cycle_s=rng.uniform(0.05, 2)),),
                Cores(envs * 0.97, threads=envs + 4))  # fmt: skip
    host = envs * rng.uniform(0.3, 1.0) * GIB
    board = rng.choice((A100, A40, RTX3090))
    held = memory.caching(rng, rng.uniform(1, 4) * GIB, board)
    program = _program(rng, "rl", [alike(duration(rng), "train", 1, node)], host, [held], FP32,
                       framework="torch", command="python ppo.py", workers=envs,
                       rank_cores=0.9)  # fmt: skip
    program.causes["simulator"] = 1 - busy
    asked = request(rng, program, host, cpus=envs, gpus=1, board=board)
    return f"reinforcement learning, {envs} environments on cores", program, asked


# -- people and media


def notebook(rng: Random) -> tuple:
    """A person thinks for half an hour, then runs a cell for a minute."""
    board: Board = rng.choice((A100, A40, RTX3090, MIG_10))
    segments = [alike(120, "start", 1, quiet(1, 0.3))]
    for _ in range(rng.randint(2, 5)):
        segments.append(alike(rng.uniform(30, 240), "cell", 1,
                              Node((load(BF16, 0.7),), Cores(1.2))))  # fmt: skip
        segments.append(alike(rng.uniform(25, 60) * MIN, "think", 1, quiet(1, 0.01)))
    host = rng.uniform(3, 10) * GIB
    held = memory.caching(rng, 0.4 * board.mem_bytes, board)
    program = _program(rng, "jupyter", segments, host, [held], BF16, framework="torch",
                       command="python -m ipykernel_launcher -f kernel.json",
                       interactive=True)  # fmt: skip
    asked = request(rng, program, host, cpus=rng.choice((2, 4)), gpus=1, board=board)
    end = program.seconds - 1
    return "a notebook, mostly waiting for its user", program, asked, Fate(end, "CANCELLED", 0, 15)


def video(rng: Random) -> Drawn:
    """NVENC or NVDEC at work, hardly a kernel."""
    encoder, decoder = rng.choice(((0.8, 0.3), (0.0, 0.7), (0.6, 0.0)))
    busy = rng.choice((0.0, 0.02, 0.05))
    node = Node((Gpu(busy, sm=0.1, power=0.1, encoder=encoder, decoder=decoder, pcie=8e8),),
                Cores(1.6, threads=12), read=4e7, write=1e7)  # fmt: skip
    host = rng.uniform(1, 4) * GIB
    kernel = FP32._replace(limits={"latency": 1.0})
    board = rng.choice((A40, A100 if decoder else A40, RTX3090))
    program = _program(rng, "ffmpeg", [alike(duration(rng), "encode", 1, node)], host,
                       [memory.direct(rng, rng.uniform(0.4, 1.5) * GIB)], kernel,
                       command="ffmpeg -hwaccel cuda -i in.mp4 -c:v hevc_nvenc out.mp4",
                       name="ffmpeg", rank_cores=1.6)  # fmt: skip
    asked = request(rng, program, host, cpus=2, gpus=1, board=board)
    return f"video, encoder {encoder:.0%}, decoder {decoder:.0%}", program, asked


def copying(rng: Random) -> Drawn:
    """Data larger than the GPU streams through it: the copy engine works, kernels are short."""
    busy = rng.uniform(0.1, 0.25)
    board = rng.choice((A100, A40))
    node = Node((load(FP32, busy, pcie=rng.uniform(8e9, 20e9), cycle_s=0.3),), Cores(1.5))
    host = rng.uniform(60, 200) * GIB
    program = _program(rng, "stream", [alike(duration(rng), "stream", 1, node)], host,
                       [memory.direct(rng, 0.8 * board.mem_bytes, "torch")], FP32,
                       command="python out_of_core.py")  # fmt: skip
    program.causes["simulator"] = 0.5
    asked = request(rng, program, host, cpus=2, gpus=1, board=board)
    return f"streams host memory through the GPU, busy {busy:.0%}", program, asked


def rare_kernels(rng: Random) -> Drawn:
    """Two in a hundred of the time on the GPU, for the whole run: under-used, not idle."""
    period = rng.uniform(20, 90)
    busy = rng.uniform(0.02, 0.08)
    board = rng.choice((A100, A40))
    node = Node((load(FP32, busy, cycle_s=period),), Cores(0.99))
    host = rng.uniform(2, 8) * GIB
    program = _program(rng, "mixed", [alike(duration(rng), "work", 1, node)], host,
                       [memory.caching(rng, 2 * GIB, board)], FP32, framework="torch",
                       command="python fit.py")  # fmt: skip
    program.causes["simulator"] = 1 - busy
    asked = request(rng, program, host, cpus=rng.choice((1, 2)), gpus=1, board=board)
    return f"a kernel every {period:.0f} s ({busy:.0%})", program, asked


def on_slice(rng: Random) -> Drawn:
    """Training on a slice of a GPU: no utilization can be read."""
    host = rng.uniform(3, 8) * GIB
    node = Node((load(BF16, 0.9),), Cores(1.8, threads=5), read=2e7)
    held = memory.caching(rng, rng.uniform(3, 7) * GIB, MIG_10)
    program = _program(rng, "train", [alike(duration(rng), "train", 1, node)], host, [held], BF16,
                       framework="torch", workers=2)  # fmt: skip
    asked = request(rng, program, host, cpus=2, gpus=1, board=MIG_10)
    return "healthy training on a MIG slice", program, asked
