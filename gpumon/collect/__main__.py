"""The agent without the rest of gpumon: `python -m gpumon.collect`, or this file (isolated.py)."""

import sys

if not __package__:
    root = __file__.rpartition("/gpumon/")[0]
    sys.path.insert(0, root)
    from gpumon.isolated import settle

    settle(root)

from gpumon.collect.stream import main

main()
