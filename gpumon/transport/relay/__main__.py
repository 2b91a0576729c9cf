"""The relay's process: this file, by isolated.py."""

import sys

if not __package__:
    root = __file__.rpartition("/gpumon/")[0]
    sys.path.insert(0, root)
    from gpumon.isolated import settle

    settle(root)

from gpumon.transport.relay.server import main

main()
