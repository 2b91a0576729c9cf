"""`python -m gpumon`; and `python -I FOLDER/gpumon/__main__.py`, by which gpumon starts itself."""

import sys

if not __package__:
    root = __file__.rpartition("/gpumon/")[0]
    sys.path.insert(0, root)
    from gpumon.isolated import settle

    settle(root)

from gpumon.cli import main

sys.exit(main())
