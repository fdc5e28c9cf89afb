"""Drives a headless Chromium by the DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import os
import re
import shutil
from pathlib import Path

import aiohttp
import pytest

MISSING = "chromium is missing: tests of the dashboard's page are skipped (Debian: apt-get install chromium)"
SECONDS = 60


def program():
    found = shutil.which("chromium")
    if found is None:
        assert os.environ.get("CI") != "true", MISSING
        pytest.skip(MISSING)
    return found


@contextlib.asynccontextmanager
async def opened(folder: Path, url: str, width=1200, height=800, scheme="light"):
    """A browser that shows a page, with a profile of its own in `folder`."""
    log = folder / "chromium.err"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
    with log.open("w") as err:
        process = await asyncio.create_subprocess_exec(
            program(), *options, f"--user-data-dir={folder / 'profile'}", "about:blank", stderr=err
        )
    try:
        async with asyncio.timeout(SECONDS):
            while not (found := re.search(r"DevTools listening on ws://(\S+?)/", log.read_text())):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.05)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{found[1]}/json/list") as response:
                target = next(each for each in await response.json() if each["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                await tab.call("Emulation.setDeviceMetricsOverride", **metrics)
                await tab.call(
                    "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
                )
                await tab.call("Page.navigate", url=url)
                yield tab
    finally:
        process.terminate()
        await process.wait()


class Tab:
    """One page of the browser."""

    def __init__(self, socket):
        self._socket = socket
        self._ids = itertools.count(1)

    async def call(self, method, **parameters):
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(SECONDS):
            while (answer := await self._socket.receive_json()).get("id") != number:
                pass
        assert "error" not in answer, answer
        return answer["result"]

    async def value(self, script):
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    async def wait(self, script):
        """Until the script's value is true."""
        await self.value(
            f"new Promise(done => {{ const look = () => {script} ? done() : setTimeout(look, 20); look(); }})"
        )

    async def press(self, key, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            sent = {"text": text} if kind == "keyDown" and text else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **sent)

    async def screenshot(self):
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])
