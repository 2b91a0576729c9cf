"""The screen: the only part that imports textual. It reads the store, never a connection."""

import sys

if not {"asyncio", "ssl"} & sys.modules.keys():
    # without OpenSSL, for connections that no screen makes: 2.3 MiB and a fortieth of the start
    sys.modules["ssl"] = None  # type: ignore[assignment]
    import asyncio  # noqa: F401

    del sys.modules["ssl"]
