"""`python -m gpumon.collect`: the agent without the rest of gpumon."""

from gpumon.collect.stream import main

main()
