"""A real browser for tests of pages: Chromium without a window, driven over a pipe by its DevTools protocol.

Standard library only. The names of methods and events are those of
https://chromedevtools.github.io/devtools-protocol.
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    """The path of one, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of one size. What goes wrong on it, and every request it makes, is kept."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp()
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # The protocol is spoken on the files 3 and 4.
        self._process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "sh", program, "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self._buffer, self._last, self._session = b"", 0, None
        self.problems, self.requests = [], []
        target = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self.profile, ignore_errors=True)

    # ---- the protocol ----

    def _message(self, seconds):
        until = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise ConnectionError("the browser has ended")
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, seconds=60, **parameters):
        """The result of a method."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(seconds)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        method, said = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.problems.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    # ---- what tests do ----

    def size(self, width, height, phone=False, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path, fragment=""):
        self.call("Page.navigate", url="about:blank")
        self.problems.clear()
        self.requests.clear()
        self.call("Page.navigate", url=pathlib.Path(path).absolute().as_uri() + fragment)
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression):
        """The value of an expression of JavaScript."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait_for(self, expression, seconds=60):
        until = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {expression}; problems: {self.problems}")
            time.sleep(0.02)

    def settle(self):
        """Until what was begun is drawn."""
        self.call("Runtime.evaluate", awaitPromise=True, expression=(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))"))

    def place(self, selector, across=0.5, down=0.5):
        """Where a part of an element is in the window, having it in sight."""
        left, top, width, height = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect();"
            " return [b.left, b.top, b.width, b.height]; })()")
        return left + across * width, top + down * height

    def move(self, selector, across, down):
        x, y = self.place(selector, across, down)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, selector, across=0.5, down=0.5):
        x, y = self.place(selector, across, down)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def tap(self, selector, across=0.5, down=0.5):
        x, y = self.place(selector, across, down)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
        self.settle()

    def choose(self, selector, value):
        """An option of a list, as a reader's choice would."""
        self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
                      f" e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change')); }})()")
        self.settle()

    def screenshot(self, path=None, whole=False):
        """The bytes of a PNG file; written to `path` too if given."""
        picture = base64.b64decode(
            self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])
        if path:
            pathlib.Path(path).write_bytes(picture)
        return picture
