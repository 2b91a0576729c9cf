"""Runs the exporter until a signal ends it."""

from __future__ import annotations

import sys
import threading
from queue import Empty, SimpleQueue

from gpumon.ending import leaving
from gpumon.errors import EXIT_OK, GpumonError
from gpumon.exporter.access import WebConfig, read_web_config
from gpumon.exporter.sampling import NodeSampler
from gpumon.exporter.serve import (
    DEFAULT_ADDRESS,
    ExporterServer,
    Page,
    parse_address,
    write_textfile,
)


def serve(
    *,
    listen: str | None,
    textfile: str | None,
    interval_s: float,
    web_config: str | None,
    names: tuple[str, ...],
    processes: bool,
) -> int:
    """Answer scrapes, or write a file, or both; returns the exit code. Raises GpumonError."""
    address = parse_address(listen or DEFAULT_ADDRESS)
    web = read_web_config(web_config) if web_config else WebConfig()
    sampler = NodeSampler(interval_s)
    page = Page(sampler, names, processes=processes)
    server = ExporterServer(address, page, web) if listen or not textfile else None
    ends: SimpleQueue[Exception | None] = SimpleQueue()
    with leaving(lambda _code: ends.put(None)):
        sampler.start(ends.put)
        if server is not None:
            threading.Thread(target=server.serve_forever, daemon=True, name="http").start()
            scheme = "https" if web.tls is not None else "http"
            host, port = server.server_address[:2]
            shown = f"[{host!s}]" if ":" in str(host) else str(host)
            print(f"gpumon: metrics at {scheme}://{shown}:{port}/metrics", file=sys.stderr)
        failed = _write_until(ends, textfile, page, interval_s)
        sampler.stop()
    if failed is not None:
        raise failed
    return EXIT_OK


def _write_until(
    ends: SimpleQueue[Exception | None], textfile: str | None, page: Page, interval_s: float
) -> Exception | None:
    """Writes the file after each sample, until something ends it: None is a signal. A disk that is
    full is reported once, and tried again.
    """
    said = ""
    while True:
        if textfile is not None:
            try:
                write_textfile(textfile, page)
                said = ""
            except (GpumonError, OSError) as error:
                if str(error) != said:
                    said = str(error)
                    print(f"gpumon: {said}", file=sys.stderr)
        try:
            return ends.get(timeout=None if textfile is None else interval_s)
        except Empty:
            continue
