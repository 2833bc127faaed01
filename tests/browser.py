"""A real browser for tests of pages: headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_TIMEOUT_S = 60.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "about:blank"),
)
_COMPLAINTS = {"error", "assert", "warning"}


class Tab:
    """A page. ``complaints`` are the errors and warnings of its console, ``requests`` the URLs it
    asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self.requests: list[str] = []

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await reply

    async def listen(self) -> None:
        """Take in what the browser says, until it is cancelled."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                reply = self._replies.pop(said["id"])
                if "error" in said:
                    reply.set_exception(AssertionError(said["error"]["message"]))
                else:
                    reply.set_result(said["result"])
            else:
                self._note(said["method"], said["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in _COMPLAINTS:
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in _COMPLAINTS:
                self.complaints.append(params["entry"]["text"])

    async def open(self, url: str) -> None:
        """Go to ``url`` and wait until it has loaded."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")
        self._loaded.clear()
        await self.send("Page.navigate", url=url)
        await self._loaded.wait()
        await self.settled()

    async def run(self, expression: str) -> Any:
        """The JSON value of an expression in JavaScript, awaited if it is a promise."""
        found = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def settled(self) -> None:
        """Wait until what has changed is drawn: two frames."""
        frame = "requestAnimationFrame"
        await self.run(f"new Promise((done) => {frame}(() => {frame}(() => done(0))))")

    async def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Make the window, or the phone, so many CSS pixels large."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )
        await self.send("Emulation.setTouchEmulationEnabled", enabled=mobile)
        await self.settled()

    async def emulate(self, *, media: str = "", scheme: str = "light") -> None:
        """Prefer a color scheme; be ``print`` or, with an empty ``media``, the screen."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", media=media, features=features)
        await self.settled()

    async def point(
        self, selector: str, x: float = 0.5, y: float = 0.5, *, clicks: int = 0
    ) -> None:
        """Move the mouse to a place in an element, in shares of its size; and click so often."""
        left, top, width, height = await self._box(selector)
        at = {"x": left + x * width, "y": top + y * height}
        await self.send("Input.dispatchMouseEvent", type="mouseMoved", **at)
        for count in range(1, clicks + 1):
            for kind in ("mousePressed", "mouseReleased"):
                await self.send(
                    "Input.dispatchMouseEvent", type=kind, button="left", clickCount=count, **at
                )
        await self.settled()

    async def drag(self, selector: str, start: float, end: float) -> None:
        """Draw the mouse across the middle of an element, with its button down."""
        left, top, width, height = await self._box(selector)
        places = [{"x": left + each * width, "y": top + height / 2} for each in (start, end)]
        kinds = ("mouseMoved", "mousePressed", "mouseMoved", "mouseReleased")
        for kind, at in zip(kinds, sorted(places * 2, key=places.index), strict=True):
            await self.send(
                "Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **at
            )
        await self.settled()

    async def tap(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Touch a place in an element with a finger."""
        left, top, width, height = await self._box(selector)
        at = {"x": left + x * width, "y": top + y * height}
        await self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[at])
        await self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        await self.settled()

    async def _box(self, selector: str) -> list[float]:
        """Left, top, width and height of an element, which is brought into view."""
        found: list[float] = await self.run(
            "(() => { const found = document.querySelector(" + repr(selector) + ");"
            "found.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const box = found.getBoundingClientRect();"
            "return [box.left, box.top, box.width, box.height]; })()"
        )
        return found

    async def press(self, key: str) -> None:
        """Press a key on what has the focus."""
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)
        await self.settled()

    async def screenshot(self) -> bytes:
        """The whole page as PNG."""
        found = await self.send("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    async def pdf(self) -> bytes:
        """The page as it is printed."""
        found = await self.send("Page.printToPDF", printBackground=True)
        return base64.b64decode(found["data"])


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Tab]:
    """A tab of a browser of its own, whose files are in ``profile``."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        f"--user-data-dir={profile}",
        *_FLAGS,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            port = await _port(process.stderr)
            # It must be read, or the browser waits once the pipe is full.
            drain = asyncio.create_task(process.stderr.read())
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                    found = await response.json()
                url = next(each["webSocketDebuggerUrl"] for each in found if each["type"] == "page")
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    tab = Tab(socket)
                    listening = asyncio.create_task(tab.listen())
                    try:
                        yield tab
                    finally:
                        await _ended(listening)
            await _ended(drain)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _port(stderr: asyncio.StreamReader) -> int:
    async for line in stderr:
        found = re.search(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line)
        if found:
            return int(found[1])
    raise AssertionError("the browser ended before it listened")


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
