"""The screen: the only part that imports textual. It reads the store, never a connection."""

import sys

from gpumon.tui.postponed import postponing

if not {"asyncio", "ssl"} & sys.modules.keys():
    # without OpenSSL, for connections that no screen makes: 2.3 MiB and a fortieth of the start
    sys.modules["ssl"] = None  # type: ignore[assignment]
    import asyncio  # noqa: F401

    del sys.modules["ssl"]

if "textual" not in sys.modules:
    with postponing():
        import textual.app
        import textual.drivers.linux_driver  # noqa: F401
