"""A real Prometheus on loopback, with a history that promtool writes into its blocks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import until


@contextmanager
def running(folder: Path, openmetrics: str = "", config: str = "", web: str = "") -> Iterator[str]:
    """Its URL; it holds what `openmetrics` says, scrapes as `config` says, and lets in whom `web`
    says (https://prometheus.io/docs/prometheus/latest/configuration/https/).
    """
    data = folder / "data"
    data.mkdir(parents=True)
    if openmetrics:
        made = folder / "history.txt"
        made.write_text(openmetrics)
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(made), str(data)],
            check=True,
            capture_output=True,
        )
    settings = folder / "prometheus.yml"
    settings.write_text(config or "global: {scrape_interval: 1s}\n")
    port = free_port()
    extra = []
    if web:
        (folder / "web.yml").write_text(web)
        extra = [f"--web.config.file={folder / 'web.yml'}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={settings}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=20y",
                f"--web.listen-address=127.0.0.1:{port}",
                *extra,
            ],
            stdout=log,
            stderr=log,
        )
    url = f"{'https' if 'tls_server_config' in web else 'http'}://127.0.0.1:{port}"
    try:
        until(lambda: "Server is ready" in (folder / "log").read_text() or process.poll())
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        yield url
    finally:
        process.terminate()
        process.wait()
