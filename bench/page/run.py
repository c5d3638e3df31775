#!/usr/bin/env python3
"""The size of a report, and how long a browser takes to open it and to draw a frame of its timeline. See README.md."""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

FRAMES = 300

# Moves the timeline in every frame, and returns how many frames there were in how many seconds.
MOVE = """
((kind, frames) => new Promise(done => {
  const view = app.current.view, stamps = [];
  (function step(stamp) {
    stamps.push(stamp);
    if (stamps.length > frames) return done((stamps.at(-1) - stamps[1]) / 1000);
    if (kind === 'zoom') view.zoom(stamps.length % 150 < 75 ? 0.9 : 1 / 0.9, view.left + view.width() * 0.4);
    else view.pan(stamps.length % 40 < 20 ? 0.02 : -0.02);
    requestAnimationFrame(step);
  })(performance.now());
}))
"""


class Browser:
    """Headless Chromium, driven over a pipe by the DevTools protocol. It needs no network."""

    def __init__(self, directory, width, height):
        (commands, self.to), (self.back, answers) = os.pipe(), os.pipe()

        def pipes():
            # The protocol uses descriptors 3 and 4.
            os.dup2(os.dup(commands), 13)
            os.dup2(os.dup(answers), 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"]
        command = ["chromium", *options, f"--user-data-dir={directory}", "about:blank"]
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(command, preexec_fn=pipes, close_fds=False, stdin=null, stdout=null, stderr=null)
        self.last, self.session, self.rest, self.events = 0, {}, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.call("Page.enable")
        # CPU time of the page's thread, which other work on the machine does not lengthen.
        self.call("Performance.enable", timeDomain="threadTicks")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method, **params):
        self.last += 1
        os.write(self.to, json.dumps({"id": self.last, "method": method, "params": params, **self.session}).encode() + b"\0")
        while (answer := self.next()).get("id") != self.last:
            self.events.append(answer.get("method"))
        assert "error" not in answer, answer
        return answer["result"]

    def next(self):
        while b"\0" not in self.rest:
            self.rest += os.read(self.back, 1 << 20)
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def js(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, page):
        self.call("Page.navigate", url=f"file://{page}")
        while "Page.loadEventFired" not in self.events:
            self.events.append(self.next().get("method"))
        self.js("ready")

    def thread_seconds(self):
        """The CPU time of the page's thread so far."""
        metrics = {metric["name"]: metric["value"] for metric in self.call("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--warpscope", default="target/release/warpscope")
    parser.add_argument("--size", default="1920x1080", help="of the window")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory, "report.html")
        subprocess.run([options.warpscope, "export", options.recording, "-o", page], check=True, stderr=subprocess.DEVNULL)
        browser = Browser(Path(directory, "profile"), *map(int, options.size.split("x")))
        before = time.monotonic()
        browser.open(page)
        print(f"{page.stat().st_size / 2**20:.2f} MiB, open after {time.monotonic() - before:.2f} s, {browser.thread_seconds():.2f} s of them on the page's CPU")
        print(f"{browser.js('app.recording.op.start.length'):,} operations of {browser.js('app.recording.head.seen[0]'):,} in the page")
        browser.js("app.state.set({ tab: 'time' })")
        print("moved                        CPU ms per frame   frames per second")
        for name, kind, part in [("pan, all of it", "pan", 1), ("pan, a tenth", "pan", 0.1), ("pan, a hundredth", "pan", 0.01), ("pan, 1/10,000", "pan", 0.0001), ("zoom", "zoom", 1)]:
            browser.js(f"app.current.view.show(app.recording.wall * 0.2, app.recording.wall * (0.2 + {part}))")
            begin = browser.thread_seconds()
            seconds = browser.js(f"{MOVE}('{kind}', {FRAMES})")
            each = (browser.thread_seconds() - begin) / FRAMES * 1000
            print(f"{name:<28} {each:>16.1f} {(FRAMES - 1) / seconds:>19.1f}")
        browser.process.terminate()
        browser.process.wait()


if __name__ == "__main__":
    main()
