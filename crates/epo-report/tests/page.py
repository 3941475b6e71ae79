"""Test of the report's page in a real browser: headless Chromium, driven by Playwright.

    python3 crates/epo-report/tests/page.py target/debug/epo [--shots DIR]

It uses the tools of the dashboard's test, and like that one it installs what it needs. Where it cannot, it says so in
one line and succeeds. `--shots` saves screenshots.
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "epo-dash" / "tests"))
import browser as tools  # noqa: E402
import make_runs  # noqa: E402

EPOCHS = 60
TASK = make_runs.TASKS[0]
LABELS = ["EPO", "PPO-Lag"]
MINUS = "\N{MINUS SIGN}"
# the values of one panel, the ends of its axes, and its place on the screen
PANEL = """([scope, i]) => {
  const figure = document.querySelector("figure[data-curves]");
  const panel = JSON.parse(figure.dataset.curves)[i];
  const svg = document.querySelector(scope + " svg[data-figure='0']");
  const place = (x, y) => new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
  const [left, top, right, bottom] = panel.area;
  const [a, b] = [place(left, top), place(right, bottom)];
  return { ...panel, screen: [a.x, a.y, b.x, b.y] };
}"""


class Hover:
    """Points at the curves of one panel and reads the box that appears."""

    def __init__(self, page, scope, panel):
        self.page = page
        self.panel = page.evaluate(PANEL, [scope, panel])

    def place(self, step, value):
        left, top, right, bottom = self.panel["screen"]
        (x0, x1), (y0, y1) = self.panel["x"], self.panel["y"]
        return left + (step - x0) / (x1 - x0) * (right - left), bottom - (value - y0) / (y1 - y0) * (bottom - top)

    def at(self, step, value):
        """The heading, and the values by name."""
        self.page.mouse.move(*self.place(step, value))
        heading = self.page.locator("#values strong").inner_text()
        rows = self.page.locator("#values tr").all()
        cells = [row.locator("td").all_inner_texts() for row in rows]
        return heading, {name: float(v.replace(",", "").replace(MINUS, "-")) for _, name, v in cells}


def main():
    from playwright.sync_api import expect, sync_playwright

    shots = Path(sys.argv[sys.argv.index("--shots") + 1]) if "--shots" in sys.argv else None
    with tempfile.TemporaryDirectory() as tmp, sync_playwright() as playwright:
        runs, out = Path(tmp) / "runs", Path(tmp) / "report"
        for algo in ["epo", "ppo-lag"]:
            for seed in range(3):
                make_runs.write_run(runs, TASK, algo, seed, EPOCHS)
        subprocess.run([sys.argv[1], "report", runs, "--out", out, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        with open(out / "curves" / f"{TASK}.csv", encoding="utf-8") as file:
            curves = {(row["algorithm"], float(row["steps"])): row for row in csv.DictReader(file)}
        browser = playwright.chromium.launch(executable_path=tools.chromium(), args=["--no-sandbox"])
        for theme in ["light", "dark"]:
            hover(browser, expect, (out / "index.html").as_uri(), curves, theme, shots)
            print(f"hover, {theme}: ok")
        browser.close()


def hover(browser, expect, url, curves, theme, shots):
    """Fails if the box shows other values than those of the curves, or does not follow the pointer."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, color_scheme=theme, offline=True)
    page = context.new_page()
    watch = tools.Watch(page, url)
    page.goto(url)
    page.locator("figure[data-curves] svg").first.scroll_into_view_if_needed()
    box = page.locator("#values")
    expect(box).to_have_count(0)

    for panel, quantity in enumerate(["return", "cost"]):
        point = Hover(page, "body > figure", panel)
        low, high = point.panel["y"]
        for epoch in [1, 20, EPOCHS]:
            step = epoch * make_runs.STEPS
            # a point near the recorded step: two fifths of an epoch beside it, inside the axis
            beside = step + (-0.4 if epoch == EPOCHS else 0.4) * make_runs.STEPS
            heading, values = point.at(beside, high - 0.02 * (high - low))
            assert heading == f"episode {quantity} at {step:,} steps", heading
            means = {label: float(curves[label, step][f"{quantity}_mean"]) for label in LABELS}
            assert values.keys() >= means.keys(), values
            for label, mean in means.items():
                assert abs(values[label] - mean) <= 1e-4 * abs(mean), (label, values[label], mean)

    # on the line of a single seed its name and value appear, and no other seed
    lines = [line for line in point.panel["lines"] if line["thin"]]
    assert len(lines) == 6, len(lines)
    line = next(line for line in lines if line["name"] == "EPO, seed 1")
    index = 15
    _, values = point.at(line["steps"][index], line["values"][index])
    assert values.get(line["name"]) == line["values"][index], values
    assert len(values) == 3, values
    x, y = point.place(line["steps"][index], line["values"][index])
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=shots / f"report-hover-{theme}.png")

    # beside the panels nothing is shown
    page.mouse.move(point.panel["screen"][2] + 5, y)
    expect(box).to_have_count(0)
    assert page.locator("figure[data-curves] circle").count() == 0

    # the same in the enlarged figure, also when it is zoomed
    page.mouse.click(x, y)
    expect(page.locator("dialog[open] svg")).to_be_visible()
    for turns in range(2):
        point = Hover(page, "dialog", 1)
        step = 20 * make_runs.STEPS
        heading, values = point.at(step, 30.0)
        assert heading == f"episode cost at {step:,} steps", heading
        mean = float(curves["EPO", step]["cost_mean"])
        assert abs(values["EPO"] - mean) <= 1e-4 * abs(mean), values
        assert page.locator("dialog #values").count() == 1, "the box lies below the dialog"
        assert page.locator("dialog svg > g").count() == 1, "the copy has the mark of the page"
        if shots and turns:
            page.screenshot(path=shots / f"report-hover-dialog-{theme}.png")
        page.mouse.wheel(0, -100)
        page.wait_for_timeout(100)
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)

    # the names of lines are still there for screen readers, and marks keep the browser's own box
    names = page.locator("body > figure[data-curves] path[aria-label='EPO, seed 1']").count()
    assert names == 2, names
    assert page.locator("figure:not([data-curves]) path > title").count() > 0
    watch.check()
    context.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tools.chromium()
    tools.enter_environment()
    main()
