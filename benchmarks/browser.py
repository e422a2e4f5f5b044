"""A headless Chromium that is driven over pipes by its DevTools protocol; no package is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--no-first-run",
)


def found() -> str | None:
    """The program of a browser on this machine; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. `messages`: what its console said, errors of the content security policy too."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, ours = os.pipe()
        theirs, from_browser = os.pipe()
        self._write, self._read = os.fdopen(ours, "wb"), os.fdopen(theirs, "rb")

        def place() -> str:
            """The pipes as descriptors 3 and 4, where the browser looks for them."""
            return f'exec {program} "$@" 3<&{to_browser} 4>&{from_browser}'

        self._process = subprocess.Popen(
            ["/bin/bash", "-c", place(), "browser", *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._rest, self._session = 0, b"", None
        self.messages: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait()
        self._write.close()
        self._read.close()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url: str, width: int = 1600, height: int = 1000, scheme: str = "light") -> float:
        """Show a page; the seconds until it was loaded and its first picture drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url="about:blank")
        began = time.monotonic()
        self.call("Page.navigate", url=url)
        self.value(
            "new Promise(done => { const wait = () => document.readyState === 'complete' ?"
            " requestAnimationFrame(() => requestAnimationFrame(() => done(1))) :"
            " setTimeout(wait, 5); wait(); })"
        )
        return time.monotonic() - began

    def value(self, expression: str) -> Any:
        """The value of an expression in the page, once it is there."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, name: str, code: int) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name,
                windowsVirtualKeyCode=code, text="\r" if name == "Enter" else "",
            )  # fmt: skip

    def picture(self, path: Path, is_whole: bool = False) -> None:
        """Write a PNG of what is seen, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)[
            "data"
        ]
        path.write_bytes(base64.b64decode(data))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read.fileno(), 1 << 16)
            assert data, "the browser ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        params = message.get("params", {})
        if message.get("method") == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.messages.append(str(params["exceptionDetails"]))
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.messages.append(str(params["args"]))
        return message
