"""Opens the memory lab's page in a headless Chromium: its numbers are those of `frostline lab --exact`, every control does what it
says, by mouse and keyboard; nothing on the console, no sideways scrolling, readable text, a name for every control, and no
complaint of axe-core where that is installed.
usage: lab_page.py PAGE.html      FROSTLINE: the program; FROSTLINE_AXE: axe.min.js"""
import importlib.util, json, os, pathlib, subprocess, sys
from browser import CONTRAST, Browser

page = pathlib.Path(sys.argv[1])
faults, checks = [], 0
WIDTHS, THEMES = (390, 768, 1600), ("light", "dark")


def check(is_right, what):
    global checks
    checks += 1
    if not is_right:
        faults.append(what)
    return is_right


def axe_source():
    """The text of axe.min.js, or None."""
    place = os.environ.get("FROSTLINE_AXE")
    if place:
        return pathlib.Path(place).read_text()
    package = importlib.util.find_spec("axe_core_python")
    return (pathlib.Path(package.origin).parent / "axe.min.js").read_text() if package else None


def program_numbers(pairs, **options):
    """What the program says, and the page's expression for the same."""
    name = page.with_suffix(".json")
    flags = [word for key, value in options.items() for word in ("--" + key.replace("_", "-"), repr(value))]
    subprocess.run([os.environ["FROSTLINE"], "lab", "--exact", name, "--pairs", ",".join(map(str, pairs))] + flags, check=True)
    o = {"concentration": 0, "gate": 1, "beta": 1, "gate_rest": 1, "overlap": 0.6, **options}
    draws = {key: o[key] for key in ("dimension", "trials", "seed", "concentration")}
    strength = {"gate": o["gate"], "gateRest": o["gate_rest"], "beta": o["beta"]}
    return json.loads(name.read_text()), f"lab.numbers({draws}, {strength}, {o['overlap']}, {list(pairs)})"


def differences(a, b, place=""):
    """(largest difference, numbers compared); what is not in both, or of another kind, is a fault."""
    if isinstance(a, (dict, list)):
        keys = a.keys() if isinstance(a, dict) else range(len(a))
        if type(a) is not type(b) or len(a) != len(b):
            check(False, f"page and program differ in form at {place}")
            return 0, 0
        parts = [differences(a[key], b[key], f"{place}/{key}") for key in keys]
        return max((p[0] for p in parts), default=0), sum(p[1] for p in parts)
    if a is None or b is None:
        check(a is b, f"{place}: {a} and {b}")
        return 0, 1
    return abs(a - b), 1


def agreement():
    worst, count = 0, 0
    for pairs, options in [
        ((1, 8, 50), dict(dimension=32, trials=10, seed=1, gate=0.98)),
        ((3, 40), dict(dimension=7, trials=3, seed=4294967295, gate=0.9, gate_rest=0.5, beta=0.7, overlap=0.25)),
        ((64,), dict(dimension=16, trials=4, seed=77, gate=0.95, gate_rest=0.99, beta=0.3, concentration=0.8, overlap=0)),
        ((5,), dict(dimension=1, trials=1, seed=0, gate=0, gate_rest=0, beta=0, overlap=0.95)),
    ]:
        theirs, expression = program_numbers(pairs, **options)
        most, compared = differences(theirs, browser.ask(expression))
        check(most <= 1e-12, f"{options}: page and program differ by {most}")
        worst, count = max(worst, most), count + compared
    print(f"lab page: {count} numbers of page and program, largest difference {worst:.2g}")


def text(selector):
    return browser.ask(f'document.querySelector("{selector}").textContent')


def click(selector):
    browser.ask(f"document.querySelector('{selector}').click()")


def shown_numbers():
    """What a reader sees is what was computed: the course's own sizes."""
    theirs, _ = program_numbers((50,), dimension=32, trials=10, seed=1, gate=0.98)
    both = theirs["checks"][0]
    rows = browser.ask('Array.from(document.querySelectorAll("#check-2 tbody tr")).map(r => Array.from(r.cells).map(c => c.textContent))')
    for row, rule in zip(rows, ("linear", "delta", "gated_delta", "kda"), strict=True):
        wanted = [f"{both['overwrite'][rule][key]:.3f}" for key in ("to_newest", "to_old", "to_blend", "cosine", "cosine_old")]
        check([cell.replace("\u2212", "-") for cell in row[1:]] == wanted, f"{rule}: {row} is shown, not {wanted}")
    row = browser.ask('Array.from(document.querySelectorAll("#check-3 tbody tr")).map(r => Array.from(r.cells).map(c => c.textContent))'
                      '.filter(r => r[0] === "50")[0]')
    for at, rule in zip((3, 5, 7, 9), ("linear", "delta", "gated_delta", "kda")):
        check(row[at] == f"{both['capacity'][rule]['accuracy']:.3f}", f"{rule}: accuracy {row[at]} is shown")
    check("equal but for rounding" in text("#check-1"), "check 1 does not hold")
    check("1,562.5 times" in text("#exercise-state") and "4 times smaller" in text("#exercise-hybrid"), "an exercise has no answer")


def figure():
    """Step, back, guess, rules, play."""
    for step in range(1, 5):
        click("#step")
        check(text("#now").startswith(f"Write {step}:"), f"step {step}: {text('#now')}")
    check(browser.ask('!document.querySelector("#predict").hidden && !!document.querySelector(".hidden-recall")'),
          "recall is not covered before it is predicted")
    check(browser.ask('document.querySelector("#try").disabled'), "recall without a guess")
    for guess, word in (("new", "Not this."), ("old", "Not this."), ("none", "Not this."), ("blend", "Right.")):
        click(f'input[value="{guess}"]')
        click("#try")
        check(text("#verdict").startswith(word), f"guess {guess}: {text('#verdict')}")
        check(browser.ask('document.activeElement.id === "verdict" && !document.querySelector(".hidden-recall")'), "no recall shown")
        click("#restart")
        for _ in range(4):
            click("#step")
    click("#show")
    check(text("#verdict").startswith("Plain accumulation returns"), text("#verdict"))
    check("exactly the value last stored" in text("#words p:nth-child(2)"), "the delta rule does not recall the new value")
    click("#back")
    check(text("#now").startswith("Write 3:") and text("#verdict") == "", "back does not go back")
    for number, rule in enumerate(("linear", "delta", "gated_delta", "kda")):
        click(f'#rules input[value="{rule}"]')
        check(browser.ask('document.querySelectorAll(".panel").length') == 3 - number, f"{rule} is not taken away")
    for rule in ("linear", "delta", "gated_delta", "kda"):
        click(f'#rules input[value="{rule}"]')
    click("#restart")
    click("#play")
    check(browser.ask('document.querySelector("#play").getAttribute("aria-pressed")') == "true", "play does not say that it plays")
    click("#play")
    check(text("#play") == "Play", "play does not pause")
    click("#play")
    browser.ask("""new Promise(done => { const look = setInterval(() => {
      if (document.querySelector("#play").textContent === "Play") { clearInterval(look); done(); } }, 50); })""")
    check(text("#now").startswith("Write 4:"), f"play ends at {text('#now')}")
    marks = browser.ask("""Array.from(document.querySelectorAll("table.state td")).filter(c => c.className)
      .map(c => [c.textContent.startsWith("\\u2212"), getComputedStyle(c).backgroundImage !== "none"])""")
    check(any(m[0] for m in marks) and all(a == b for a, b in marks), "negative entries are not those that are hatched")


def sliders_and_fields():
    """Each by the keyboard, each with a visible effect."""
    click("#show")
    for name, effect in (("overlap", "#panels"), ("beta", "#panels"), ("gate", "#panels"), ("gate-rest", "#panels"), ("context", "#cost-table")):
        before, value = text(effect), text(f"#{name}-value")
        browser.ask(f'document.getElementById("{name}").focus()')
        browser.press("ArrowLeft")
        check(text(effect) != before and text(f"#{name}-value") != value, f"slider {name} does nothing")
    check(browser.ask('document.getElementById("context").getAttribute("aria-valuetext")') == text("#context-value") + " tokens",
          "the context's slider says its exponent")
    for name in browser.ask('Array.from(document.querySelectorAll("#shape input[type=number]")).map(e => e.id)'):
        before = text("#cost-table")
        browser.ask(f"""(() => {{ const e = document.getElementById("{name}"); e.value = Number(e.value) + 1;
          e.dispatchEvent(new Event("input", {{bubbles: true}})); }})()""")
        check(text("#cost-table") != before, f"field {name} does nothing")
    check(browser.ask('document.getElementById("preset").value') == "own", "a changed shape keeps the preset's name")
    for preset in range(browser.ask('document.getElementById("preset").options.length') - 1):
        before = text("#cost-table")
        browser.ask(f"""(() => {{ const e = document.getElementById("preset"); e.value = "{preset}";
          e.dispatchEvent(new Event("change", {{bubbles: true}})); }})()""")
        check(text("#cost-table") != before and "NaN" not in text("#cost-table") + text("#cost-words"), f"preset {preset}")
    for name, value in (("pairs", 5), ("dimension", 8), ("seed", 2), ("trials", 3), ("concentration", 0.8), ("check-gate", 0.5), ("check-gate-rest", 0.9), ("check-beta", 0.5)):
        before = text("#check-2") + text("#check-3") + text("#check-status")
        browser.ask(f'document.getElementById("{name}").value = "{value}"')
        click("#run")
        check(browser.ask("lab.ready") and text("#check-2") + text("#check-3") + text("#check-status") != before, f"field {name} does nothing")
    status = text("#check-status")
    browser.ask('document.getElementById("pairs").value = "0"')
    click("#run")
    check(text("#check-status") == status and browser.ask('!document.getElementById("pairs").validity.valid'), "0 pairs are taken")
    browser.ask('document.getElementById("pairs").value = "1"')
    click("#run")
    check(browser.ask("lab.ready") and "NaN" not in text("main"), "one pair gives NaN")
    for at in range(browser.ask('document.querySelectorAll("summary").length')):
        browser.ask(f'document.querySelectorAll("summary")[{at}].focus()')
        browser.press("Enter")
        check(browser.ask(f'document.querySelectorAll("details")[{at}].open'), f"exercise {at} does not open")


def keyboard():
    """Tab reaches every control, in the order of the page, with a visible ring."""
    wanted = browser.ask("""(() => { const seen = new Set(); return Array.from(document.querySelectorAll(
      "a[href], button, input, select, summary, [tabindex='0']")).filter(e => e.getClientRects().length && !e.disabled && e.tabIndex >= 0)
      .filter(e => e.type !== "radio" || (!seen.has(e.name) && seen.add(e.name))).map((e, i) => { e.dataset.order = i; return i; }).length; })()""")
    browser.ask("document.activeElement.blur()")
    reached, ringless = [], []
    for _ in range(wanted):
        browser.press("Tab")
        at = browser.ask('document.activeElement.dataset.order')
        reached.append(at)
        if browser.ask('getComputedStyle(document.activeElement).outlineStyle') == "none":
            ringless.append(at)
    check(reached == [str(i) for i in range(wanted)], f"Tab goes {reached}")
    check(ringless == [], f"no ring on {ringless}")


def names():
    roles = {"button", "slider", "checkbox", "radio", "spinbutton", "combobox", "image", "img", "table", "region", "link", "progressbar"}
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    bare = [n["role"]["value"] for n in nodes if not n.get("ignored") and n["role"]["value"] in roles and not n.get("name", {}).get("value")]
    check(len(nodes) > 200 and bare == [], f"without a name: {bare}")
    check(browser.ask("""Array.from(document.querySelectorAll("fieldset")).every(
      f => f.firstElementChild.localName === "legend" && f.firstElementChild.textContent.trim())"""), "a group without a legend")
    check(browser.ask("""(() => { const ids = Array.from(document.querySelectorAll("[id]")).map(e => e.id);
      return ids.length === new Set(ids).size; })()"""), "an id occurs twice")
    check(browser.ask("""Array.from(document.querySelectorAll('a[href^="#"]')).every(
      a => document.getElementById(a.getAttribute("href").slice(1)))"""), "a link leads nowhere")


def run_axe(source, what):
    browser.ask(source + ";0")
    found = browser.ask("""axe.run().then(r => r.violations.map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120)).join(" | ")))""")
    check(found == [], f"axe-core, {what}: {found}")


axe = axe_source()
if axe is None:
    print("skipped: lab page: axe-core is not installed (pip install axe-core-python)")
browser = Browser()
try:
    browser.open(page)
    check(browser.ask("lab.ready"), "the checks do not end")
    agreement()
    shown_numbers()
    figure()
    sliders_and_fields()
    names()
    check(not browser.complaints, f"{browser.complaints}")
    browser.open(page)
    browser.ask("lab.ready")
    keyboard()
    for theme in THEMES:
        for width in WIDTHS:
            browser.open(page, width=width, theme=theme)
            browser.ask("lab.ready")
            for step in range(5):
                wide = browser.ask("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
                check(wide <= width, f"{width} px, {theme}, step {step}: the page is {wide} px wide")
                click("#step")
            browser.ask('document.querySelectorAll("details").forEach(d => { d.open = true; })')
            worst = browser.ask(CONTRAST)
            check(worst["seen"] > 100 and worst["ratio"] >= 4.5, f"{width} px, {theme}: contrast {worst}")
            if axe:
                run_axe(axe, f"{width} px, {theme}, before the guess")
                click("#show")
                run_axe(axe, f"{width} px, {theme}, after it")
            check(not browser.complaints, f"{width} px, {theme}: {browser.complaints}")
finally:
    browser.close()

for fault in faults:
    print(f"lab page: {fault}")
print(f"lab page: {checks - len(faults)} of {checks} checks hold" + (", axe-core included" if axe else ""))
sys.exit(1 if faults else 0)
