"""A headless Chromium over its debugging pipe (--remote-debugging-pipe: JSON messages that end with a zero byte), with nothing
but the standard library. Pages are opened from files; what they write to the console and what they throw is kept."""
import json, os, pathlib, select, subprocess, tempfile, time


# The least contrast of any text of the page, {ratio, text}, and how many texts were seen. Texts on pictures are left out.
CONTRAST = r"""(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  function rgba(colour) {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return Array.from(canvas.getImageData(0, 0, 1, 1).data);
  }
  function behind(element) {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  }
  function light(c) {
    const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  let worst = {ratio: 21, text: ""}, seen = 0;
  for (const element of document.body.querySelectorAll("*")) {
    const own = Array.from(element.childNodes).some(n => n.nodeType === 3 && n.data.trim());
    if (!own || element.closest("svg, script, style") || element.offsetParent === null) continue;
    const a = light(rgba(getComputedStyle(element).color)), b = light(behind(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen++;
    if (ratio < worst.ratio) worst = {ratio, text: element.textContent.slice(0, 60)};
  }
  return {ratio: worst.ratio, text: worst.text, seen};
})()"""


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, program="chromium", seconds=60):
        self.seconds, self.number, self.session = seconds, 0, None
        self.events, self.buffer, self.complaints = [], b"", []
        self.profile = tempfile.TemporaryDirectory(prefix="frostline-browser-")
        to_read, self.output = os.pipe()
        self.input, to_write = os.pipe()

        def ends():  # the child reads commands from descriptor 3 and answers on 4
            ours = [os.dup(to_read), os.dup(to_write)]
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        self.child = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars=false",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ends, close_fds=False)
        os.close(to_read)
        os.close(to_write)

    def close(self):
        try:
            self.call("Browser.close", session=False)
            self.child.wait(20)
        except (BrowserError, subprocess.TimeoutExpired, OSError):
            self.child.kill()
            self.child.wait()
        os.close(self.output)
        os.close(self.input)
        self.profile.cleanup()

    def message(self, until):
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.input], [], [], left)[0]:
                raise BrowserError("the browser does not answer")
            more = os.read(self.input, 1 << 20)
            if not more:
                raise BrowserError("the browser is gone")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, event):
        what, about = event.get("method"), event.get("params", {})
        self.events.append(what)
        if what == "Runtime.exceptionThrown":
            self.complaints.append(about["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif what == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{about['type']}: " + " ".join(str(a.get("value")) for a in about["args"]))
        elif what == "Log.entryAdded":
            self.complaints.append(f"{about['entry']['level']}: {about['entry']['text']}")
        elif what == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:")):
            self.complaints.append("asks for " + about["request"]["url"])

    def call(self, method, session=True, **parameters):
        self.number += 1
        order = {"id": self.number, "method": method, "params": parameters}
        if session and self.session:
            order["sessionId"] = self.session
        os.write(self.output, json.dumps(order).encode() + b"\0")
        until = time.monotonic() + self.seconds
        while True:
            answer = self.message(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.note(answer)

    def wait_for(self, event):
        until = time.monotonic() + self.seconds
        while event not in self.events:
            self.note(self.message(until))

    def open(self, path, width=1400, height=900, theme="light"):
        """A fresh page of this size, whose reader's system is in this theme."""
        if self.session:
            self.call("Target.closeTarget", session=False, targetId=self.target)
        self.session, self.complaints = None, []
        self.target = self.call("Target.createTarget", session=False, url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", session=False, targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.events = []
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def ask(self, expression):
        """The value of a JavaScript expression (a promise is waited for)."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(result["exceptionDetails"]["exception"].get("description", expression))
        return result["result"].get("value")

    def press(self, key):
        code = {"Enter": 13, " ": 32, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code={" ": "Space"}.get(key, key),
                      windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "")
