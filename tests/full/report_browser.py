"""Opens a report in a headless Chromium and checks what a reader relies on: nothing on the console, nothing asked of a network, no
sideways scrolling of the page, sorting by mouse and keyboard, the label column in view, downloads that are the files beside
the page, readable text in both themes, tables that fit their paper, a PDF.
usage: report_browser.py PAGE.html FIGURES_FOLDER"""
import base64, pathlib, sys, urllib.parse
from browser import CONTRAST, Browser

page, figures = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
faults, checks = [], 0


def check(is_right, what):
    global checks
    checks += 1
    if not is_right:
        faults.append(what)


COLUMN = """Array.from(document.querySelector("#runs").parentElement.querySelectorAll("tbody tr"))
  .map(row => row.cells[%d].dataset.v ?? row.cells[%d].textContent)"""
HEADING = 'document.querySelector("#runs").parentElement.querySelectorAll("thead th")[%d]'

browser = Browser()
try:
    for theme in ("light", "dark"):
        for width in (390, 768, 1400):
            browser.open(page, width=width, theme=theme)
            wide = browser.ask("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
            check(wide <= width, f"{width} px, {theme}: the page is {wide} px wide")
            check(not browser.complaints, f"{width} px, {theme}: {browser.complaints}")
        worst = browser.ask(CONTRAST)
        check(worst["seen"] > 50 and worst["ratio"] >= 4.5, f"{theme}: contrast {worst}")
        pictures = browser.ask('document.querySelectorAll("figure svg").length')
        check(pictures == len(list(figures.glob("*.svg"))), f"{pictures} pictures are shown")

    # The reader's choice goes before the system's.
    browser.open(page, theme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = browser.ask(paper)
    browser.ask('document.getElementById("theme").click()')
    check(browser.ask(paper) == "rgb(255, 255, 255)" != dark, "the toggle does not make a dark page light")

    # Sorting: a click, then the keyboard; what is empty stays last.
    browser.open(page, width=390)
    count = browser.ask('document.querySelector("#runs").parentElement.querySelectorAll("thead th").length')
    before = browser.ask(COLUMN % (0, 0))
    for column in range(count):
        for order in ("ascending", "descending"):
            browser.ask(f'{HEADING % column}.querySelector("button").focus()')
            if order == "ascending":
                browser.ask(f'{HEADING % column}.querySelector("button").click()')
            else:
                browser.press("Enter")
            check(browser.ask(f'{HEADING % column}.getAttribute("aria-sort")') == order, f"column {column}: not {order}")
            others = browser.ask('document.querySelectorAll("#runs ~ .wide th[aria-sort=ascending], '
                                 '#runs ~ .wide th[aria-sort=descending]").length')
            check(others == 1, f"column {column}: {others} columns claim the order")
            values = browser.ask(COLUMN % (column, column))
            filled = [v for v in values if v not in ("", "NaN")]
            check(values[:len(filled)] == filled, f"column {column}, {order}: empty cells are not last")
            try:
                numbers = [float(v) for v in filled]
                check(numbers == sorted(numbers, reverse=order == "descending"), f"column {column}: not {order}: {numbers}")
            except ValueError:
                pass
    check(sorted(before) == sorted(browser.ask(COLUMN % (0, 0))), "sorting has lost a row")

    # On a phone the names stay where they are while the rest scrolls.
    moved = browser.ask("""(() => {
      const box = document.querySelector("#runs ~ .wide"), cell = box.querySelector("tbody td");
      const from = cell.getBoundingClientRect().left;
      box.scrollLeft = 200;
      return [box.scrollLeft, cell.getBoundingClientRect().left - from];
    })()""")
    check(moved[0] > 0 and moved[1] == 0, f"the label column moves: {moved}")

    # Downloads are the files that lie in the figures' folder, byte for byte.
    links = browser.ask('Array.from(document.querySelectorAll("a[download]")).map(a => [a.download, a.href])')
    names = {name for name, _ in links}
    check(len(links) == len(names), "two downloads have one name")
    for name, address in links:
        head, _, data = address.partition(",")
        check(head == "data:text/csv;charset=utf-8", f"{name}: {head}")
        content = urllib.parse.unquote_to_bytes(data)
        beside = figures / name
        check(name == "runs.csv" or (beside.exists() and beside.read_bytes() == content), f"{name} is not the file beside")
        check(content.count(b"\n") > 1, f"{name} has no rows")
    check({p.name for p in figures.glob("*.csv")} | {"runs.csv"} == names, f"not every picture has its numbers: {names}")

    # Every place that is linked exists; no id twice; nothing from a file became an element.
    check(browser.ask("""Array.from(document.querySelectorAll('a[href^="#"]')).every(
      a => document.getElementById(a.getAttribute("href").slice(1)))"""), "a link leads nowhere")
    twice = browser.ask("""(() => {
      const ids = Array.from(document.querySelectorAll("[id]")).map(e => e.id);
      return ids.filter((id, i) => ids.indexOf(id) !== i).slice(0, 5);
    })()""")
    check(twice == [], f"ids occur twice: {twice}")
    check(browser.ask('document.querySelectorAll("img, iframe, object, script[src], link[rel=stylesheet]").length') == 0,
          "the page holds what it should not")
    check(browser.ask("window.injected === undefined"), "text from a file ran as script")
    check(browser.ask('document.querySelectorAll("figure, section, h2[id]").length') > 5, "the page is not whole")

    # Paper: light, no controls, and every table as wide as the sheet at most (A4 landscape without its margins: 1047 px).
    browser.open(page, width=1047, theme="dark")
    browser.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    check(browser.ask(paper) == "rgb(255, 255, 255)", "paper is not white")
    check(browser.ask('getComputedStyle(document.getElementById("theme")).display') == "none", "a control is printed")
    widest = browser.ask('Math.max(...Array.from(document.querySelectorAll(".sheet table")).map(t => t.offsetWidth))')
    check(widest <= 1047, f"a table is {widest} px wide on paper")
    pdf = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])
    page.with_suffix(".pdf").write_bytes(pdf)
    check(pdf.startswith(b"%PDF") and len(pdf) > 10000, "no PDF")
    check(not browser.complaints, f"{browser.complaints}")
finally:
    browser.close()

for fault in faults:
    print(f"report in a browser: {page.name}: {fault}")
print(f"report in a browser: {page.name}: {checks - len(faults)} of {checks} checks hold")
sys.exit(1 if faults else 0)
