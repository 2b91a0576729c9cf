"""A real browser without a window: Chromium, driven through a pipe in its own protocol.

It opens a page at a given width, in a light or dark scheme, takes pictures, prints, and records
every request that the page made.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions",
)  # fmt: skip
_DEADLINE_S = 60.0

Json = dict[str, Any]


class Browser:
    """`with Browser() as browser: browser.open(path, width)`."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        assert program is not None, "the tests need Chromium: apt-get install chromium"
        self._folder = tempfile.mkdtemp(prefix="browser-")
        low_in, self._to = os.pipe()
        self._from, low_out = os.pipe()
        # the browser reads commands from descriptor 3 and answers on 4, which these must not be
        theirs_in, theirs_out = (fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (low_in, low_out))
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "browser", program, *_FLAGS, f"--user-data-dir={self._folder}"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": self._folder},
        )  # fmt: skip
        for each in (low_in, low_out, theirs_in, theirs_out):
            os.close(each)
        self._rest = b""
        self._count = 0
        self._session = ""
        self._events: list[Json] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Audits"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._from)
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- pages

    def open(self, path: Path, width: int, *, scheme: str = "light", scripts: bool = True) -> None:
        self._events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=path.as_uri())
        self._wait("Page.loadEventFired")

    def requests(self) -> list[str]:
        """What the open page asked for beside itself, also where its own policy refused it."""
        self.value("new Promise(done => setTimeout(done, 50))")
        sent = [
            each["params"]["request"]["url"]
            for each in self._events
            if each["method"] == "Network.requestWillBeSent"
            and each["params"]["type"] != "Document"
        ]
        refused = [
            json.dumps(each["params"]["issue"]["details"])
            for each in self._events
            if each["method"] == "Audits.issueAdded"
            and each["params"]["issue"]["code"] == "ContentSecurityPolicyIssue"
        ]
        return sent + refused

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to on the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True,
            userGesture=True,
        )  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(b64decode(shot["data"]))

    def printed(self) -> bytes:
        """The page as PDF."""
        sheet = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return b64decode(sheet["data"])

    # -- protocol: JSON objects, each ended by a NUL

    def call(self, method: str, **params: Any) -> Json:
        self._count += 1
        message: Json = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                result: Json = answer["result"]
                return result
            self._events.append(answer)

    def _wait(self, method: str) -> None:
        while not any(each.get("method") == method for each in self._events):
            self._events.append(self._next())

    def _next(self) -> Json:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], _DEADLINE_S)
            assert ready, "the browser does not answer"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        answer: Json = json.loads(line)
        return answer
