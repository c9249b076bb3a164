"""A headless Chromium, driven through chromedriver by plain WebDriver requests; nothing but the standard library."""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
]


def free_ports(count):
    """`count` ports in a row that are free now."""
    for first in range(21000 + os.getpid() % 9000, 60000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise RuntimeError("no free ports")


def until(what, look, patience=30.0, every=0.02):
    """The first true value of `look`; fails with what it said last."""
    end = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(every)


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="barnabas-page-")
        port = free_ports(1)
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{port}"
        until("chromedriver answers", self._answers)
        options = {"args": [*FLAGS, f"--user-data-dir={self.profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/session/{session['sessionId']}"

    def _answers(self):
        try:
            return self._ask("GET", "/status")["ready"]
        except (OSError, urllib.error.URLError):
            return False

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode(errors='replace')[:600]}") from error

    def open(self, url):
        self._ask("POST", "/url", {"url": url})

    def run(self, script, *args):
        """Runs a function body in the page; its value."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def size(self, width, height, dark=False, phone=False):
        self._cdp("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone})
        scheme = "dark" if dark else "light"
        self._cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def _cdp(self, command, params):
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def shot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._ask("GET", "/screenshot")))

    def complaints(self):
        """What the console said since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def close(self):
        try:
            self._ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            shutil.rmtree(self.profile, ignore_errors=True)
