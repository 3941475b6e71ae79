"""Tests of the dashboard's page in a real browser: headless Chromium, driven by Playwright.

    python3 crates/epo-dash/tests/browser.py target/debug/examples/serve [--epo PROGRAM] [--shots DIR] [--big] [--only NAME]

`--epo target/debug/epo` also tests the real program: it trains a run, and clicks from its curve to a replay. The script installs what it needs: Playwright into a virtual environment below `target/`, and Chromium with `apt-get` if
it may. Where it cannot, it says so in one line and succeeds. `--shots` saves screenshots. `--big` also measures the
first paint with 200 and 2,000 runs. `--only` runs one test, such as `pictures`, or only the first paints: `--only big`.
The program may have arguments: "target/release/epo dash --port 0 --quiet".
"""

import functools
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree
from pathlib import Path

PLAYWRIGHT = "playwright==1.65.0"
ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(Path(__file__).resolve().parent))


def skip(why):
    print(f"\n!!!! BROWSER TEST SKIPPED: {why}\n", file=sys.stderr)
    sys.exit(0)


def chromium():
    """Path of Chromium; installs it if this is Debian or Ubuntu and we are root."""
    names = ["chromium", "chromium-browser", "google-chrome"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        found = next(filter(None, map(shutil.which, names)), None)
    return found or skip("there is no Chromium; install it with `apt-get install chromium`")


def enter_environment():
    """Runs this script again inside a virtual environment with Playwright, unless it is inside already."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "browser-test"
        python = folder / "bin" / "python3"
        if os.environ.get("EPO_BROWSER_TEST"):
            skip("Playwright cannot be imported")
        done = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
        if done.returncode == 0:
            command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", PLAYWRIGHT]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"Playwright cannot be installed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
        os.execve(python, [str(python), *sys.argv], {**os.environ, "EPO_BROWSER_TEST": "1"})


XSS = [
    "<script>X</script>",
    "<img src=x onerror=X>",
    "<svg onload=X>",
    "<svg><script>X</script></svg>",
    "\"><script>X</script>",
    "'><img src=x onerror=X>",
    "<body onload=X>",
    "<iframe srcdoc='<script>parent.X</script>'></iframe>",
    "<details open ontoggle=X>",
    "<a href=javascript:X>click</a>",
    "javascript:X",
    "<math><mtext><img src=x onerror=X></mtext></math>",
    "</title><script>X</script>",
    "</option></select><img src=x onerror=X>",
    "<input autofocus onfocus=X>",
    "<video><source onerror=X></video>",
    "{{constructor.constructor('X')()}}",
    "${X}",
    "<template><img src=x onerror=X></template>",
    "<object data=javascript:X></object>",
    "<embed src=javascript:X>",
    "<link rel=stylesheet href=javascript:X>",
    "<style>@import 'javascript:X'</style>",
    "<form action=javascript:X><button>go</button></form>",
    "<marquee onstart=X>m</marquee>",
]


class Server:
    all = []

    def __init__(self, program, folder):
        Server.all.append(self)
        self.process = subprocess.Popen([*program.split(), folder], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def stop(self):
        self.process.kill()
        self.process.wait()


class Watch:
    """Collects what must not happen in a page: errors, dialogs, requests to other places."""

    def __init__(self, page, url):
        self.bad = []
        page.on("pageerror", lambda e: self.bad.append(f"error: {e}"))
        page.on("dialog", lambda d: (self.bad.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("console", lambda m: m.type == "error" and self.bad.append(f"console: {m.text}"))
        outside = lambda r: not r.url.startswith((url, "blob:", "data:"))
        page.on("request", lambda r: outside(r) and self.bad.append(f"request: {r.url}"))

    def check(self, *allowed):
        bad = [b for b in self.bad if not any(a in b for a in allowed)]
        assert not bad, bad
        self.bad.clear()


DRAWN = "html[data-ready] #chart-main .chart[data-drawn]"


def open_page(context, url, fragment=""):
    page = context.new_page()
    watch = Watch(page, url.split("#")[0])
    page.goto(url + fragment)
    page.wait_for_selector(DRAWN)
    return page, watch


def main():
    from playwright.sync_api import expect, sync_playwright

    import make_runs

    program = sys.argv[1]
    shots = Path(sys.argv[sys.argv.index("--shots") + 1]) if "--shots" in sys.argv else None
    flags = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync"]
    with tempfile.TemporaryDirectory() as tmp, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
        only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
        tests = [empty_folder, live, focus, look_around, links, from_another_page, many_groups, sweeps, pictures, hostile, server_gone]
        if "--epo" in sys.argv:
            tests += [token, from_curve_to_cause]
        for test in [t for t in tests if only in ("", t.__name__)]:
            folder = Path(tmp) / test.__name__
            folder.mkdir()
            began = time.time()
            test(browser, program, folder, make_runs, expect, shots)
            print(f"{test.__name__}: ok, {time.time() - began:.1f} s")
        if "--big" in sys.argv or only == "big":
            for runs, most in [(200, 1.0), (2000, 3.0)]:
                first_paint(browser, program, Path(tmp) / f"runs-{runs}", make_runs, expect, runs, most)
        browser.close()


def empty_folder(browser, program, folder, make_runs, expect, shots):
    """Fails if the page stays blank without runs, or must be reloaded when the first run comes."""
    server = Server(program, folder)
    page = browser.new_page()
    watch = Watch(page, server.url)
    page.goto(server.url)
    expect(page.locator("#empty")).to_contain_text("There are no runs yet")
    expect(page.locator("#empty")).to_contain_text("epo train")
    run, _ = make_runs.write_run(folder, make_runs.TASKS[0], "epo", 0, 5, planned=10)
    page.wait_for_selector(DRAWN)
    expect(page.locator("#runtable tbody tr")).to_have_count(1)
    shutil.rmtree(run.parent)
    expect(page.locator("#empty")).to_contain_text("There are no runs yet", timeout=15_000)
    watch.check()
    page.close()
    server.stop()


def live(browser, program, folder, make_runs, expect, shots):
    """Fails if curves do not grow while a run trains, half-written rows are shown, or updates are slow."""
    make_runs.write_run(folder, make_runs.TASKS[0], "epo", 1, 40)
    run, curve = make_runs.write_run(folder, make_runs.TASKS[0], "epo", 0, 3, planned=40)
    server = Server(program, folder)
    page, watch = open_page(browser.new_context(), server.url)
    row = page.locator("#runtable tr", has=page.locator(".state.training"))
    expect(row).to_contain_text("96 k")
    drawn = int(page.get_attribute("#chart-main .chart", "data-drawn"))
    slowest = 0.0
    with open(run / "progress.csv", "a", encoding="utf-8") as file:
        for epoch in range(4, 11):
            text = curve.row()
            file.write(text[:20])
            file.flush()
            time.sleep(0.3)
            file.write(text[20:] + "\n")
            file.flush()
            began = time.time()
            expect(row).to_contain_text(f"{epoch * 32} k")
            slowest = max(slowest, time.time() - began)
    assert int(page.get_attribute("#chart-main .chart", "data-drawn")) >= drawn + 5, "the chart is drawn anew"
    print(f"  slowest new row: {slowest:.2f} s")
    assert slowest < 1.5, slowest  # one second, and time for the browser on a busy machine
    expect(page.locator("#live")).to_contain_text("1 training · 1 done")
    watch.check()
    page.context.close()
    server.stop()


def focus(browser, program, folder, make_runs, expect, shots):
    """Fails if new rows take the keyboard focus away, or put another element under a mouse button that is pressed."""
    for algo in ["epo", "ppo-lag"]:
        run, curve = make_runs.write_run(folder, make_runs.TASKS[0], algo, 0, 3, planned=400)
    server = Server(program, folder)
    page, watch = open_page(browser.new_context(), server.url)
    expect(page.locator("#groups li")).to_have_count(2)
    row = page.locator("#runtable tr", has_text="PPO-Lag")

    def more(epoch):
        with open(run / "progress.csv", "a", encoding="utf-8") as file:
            file.write(curve.row() + "\n")
        expect(row).to_contain_text(f"{epoch * 32} k")

    epoch = 3
    for selector in ["#groups input", "#runtable button[data-run]", "#runtable th button", "#chart-main .chart", "#filter"]:
        target = page.locator(selector).last
        target.evaluate("e => { e.focus(); window.focused = e; }")
        for _ in range(2):
            epoch += 1
            more(epoch)
        assert page.evaluate("window.focused.isConnected && document.activeElement === window.focused"), selector
    # a click whose button goes down before new rows and up after them
    page.evaluate("scrollTo(0, 0)")
    box = page.locator("#groups input").last.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    epoch += 1
    more(epoch)
    page.mouse.up()
    expect(page.locator("#groups input").last).not_to_be_checked()
    expect(page.locator("#chart-main .chart").first).not_to_have_attribute("aria-label", re.compile("PPO-Lag"))
    # the run with the focus is deleted: the focus stays at the table
    page.locator("#runtable button[data-run]").last.focus()
    shutil.rmtree(run.parent)
    expect(page.locator("#runtable tbody tr")).to_have_count(1, timeout=15_000)
    assert page.evaluate("document.activeElement.id") == "runtable"
    watch.check()
    page.context.close()
    server.stop()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def from_another_page(browser, program, folder, make_runs, expect, shots):
    """Fails if a link on another page does not open the dashboard, or if the other page gets anything from it."""
    make_runs.write_run(folder / "runs", make_runs.TASKS[0], "epo", 0, 5)
    server = Server(program, folder / "runs")
    parts = f"""<a href="{server.url}#theme=dark">dashboard</a><iframe src="{server.url}"></iframe><img src="{server.url}icon.svg">"""
    (folder / "index.html").write_text(f"<!doctype html><title>other</title>{parts}", encoding="utf-8")
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        for host in ["localhost", "127.0.0.1"]:  # another site, and another origin of the same site
            page = browser.new_page()
            page.goto(f"http://{host}:{other.server_port}/")
            for mode in ["cors", "no-cors"]:
                fetch = f"fetch('{server.url}api/overview', {{ mode: '{mode}' }}).then(() => 'read', () => 'refused')"
                assert page.evaluate(fetch) == "refused", mode
            assert page.evaluate("document.images[0].naturalWidth") == 0
            assert "epo dash" not in page.frames[1].content(), page.frames[1].content()
            page.click("a")
            page.wait_for_selector(DRAWN)
            expect(page.locator("html")).to_have_attribute("data-theme", "dark")
            page.close()
        other.shutdown()
    server.stop()


def token(browser, program, folder, make_runs, expect, shots):
    """Fails if the page is shown without the token, needs it twice, or keeps it in the address."""
    make_runs.write_run(folder, make_runs.TASKS[0], "epo", 0, 5)
    server = Server(f"{sys.argv[sys.argv.index('--epo') + 1]} dash --bind ::1 --token abc --port 0 --quiet", folder)
    page = browser.new_context().new_page()
    assert page.goto(server.url.removesuffix("?token=abc")).status == 401
    page.goto(server.url)
    page.wait_for_selector(DRAWN)
    assert "abc" not in page.url, page.url
    page.reload()  # a cookie holds the token
    page.wait_for_selector(DRAWN)
    page.context.close()
    server.stop()


def from_curve_to_cause(browser, program, folder, make_runs, expect, shots):
    """Fails if, with the real program, a curve does not appear while a run trains, or a click on it does not lead to the
    replay of exactly the costliest episode of that epoch, with its costs where they were paid."""
    epo = str(Path(sys.argv[sys.argv.index("--epo") + 1]).resolve())
    settings = ["train.envs=2", "train.steps_per_epoch=4000", "train.passes=2", "train.hidden=[16]", "train.final_eval_episodes=0"]
    command = [epo, "train", "SafetyPointGoal1-v0", "--physics", "fast", "--steps", "60000", "--seed", "3", "--quiet", "--runs", folder]
    server = Server(f"{epo} dash --port 0 --quiet", folder)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    watch = Watch(page, server.url)
    page.goto(server.url)
    expect(page.locator("#empty")).to_contain_text("There are no runs yet")
    training = subprocess.Popen([*command, *(part for setting in settings for part in ("--set", setting))])
    while sum(len(path.read_text().splitlines()) for path in folder.glob("*/*/progress.csv")) < 4:  # three epochs
        assert training.poll() is None, "the run ended too early"
        time.sleep(0.01)
    training.send_signal(signal.SIGSTOP)  # a fast machine would end the run before the page shows it
    page.wait_for_selector(DRAWN, timeout=60_000)
    expect(page.locator("#runtable .state.training")).to_have_count(1)
    seen = int(page.get_attribute("#chart-main .chart", "data-drawn"))
    training.send_signal(signal.SIGCONT)
    assert training.wait(timeout=300) == 0
    expect(page.locator("#runtable .state.done")).to_have_count(1, timeout=15_000)
    assert int(page.get_attribute("#chart-main .chart", "data-drawn")) > seen, "the curve grew while the run trained"

    # a click in the middle of the run: its checkpoint is gone
    run = next(folder.glob("*/*/episodes.csv")).parent
    rows = [line.split(",") for line in (run / "episodes.csv").read_text().splitlines()[1:]]
    box = page.locator("#chart-main .chart").nth(1).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#episodes tbody tr")
    listed = page.locator("#episodes tbody tr")
    first = listed.first.locator("td").all_inner_texts()
    epoch = int(re.search(r"episodes of epoch (\d+)", page.inner_text("#paneltitle"))[1])
    ended = [i + 1 for i, row in enumerate(rows) if (int(row[0]) - 1) // 4000 == epoch]
    costliest = max(ended, key=lambda i: (float(rows[i - 1][3]), -i))
    assert 3 < epoch < 12 and int(first[-1]) == costliest and float(first[2]) == float(rows[costliest - 1][3]), (first, epoch)
    labels = set(page.locator("#episodes tbody tr td:nth-child(2)").all_inner_texts())
    assert labels == {"recorded policy"} and listed.count() == len(ended) >= 2, (labels, ended)
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=shots / "episodes-1280.png")

    def replay(link, name):
        with context.expect_page() as opened:
            link.click()
        opened.value.wait_for_selector("#clock:not(:empty)", timeout=120_000)  # the first frame is drawn
        if shots:
            opened.value.evaluate("epoReplay.jump(1); epoReplay.draw()")
            opened.value.screenshot(path=shots / f"{name}-1280.png", full_page=True)
            opened.value.evaluate("epoReplay.seek(0); epoReplay.draw()")
        return opened.value

    exact = replay(listed.first.locator("a"), "replay-recorded")
    expect(exact.locator("#notice")).to_contain_text("This is exactly the episode of training. Its actions were computed again with the recorded policies")
    expect(exact.locator("#facts")).to_contain_text(f"cost {float(rows[costliest - 1][3]):g} of 25")
    data = json.loads(exact.inner_text("#data") or exact.locator("#data").text_content())
    about = data["episodes"][0][0]["about"]
    assert about["return"] == float(rows[costliest - 1][2]) and about["cost"] == float(rows[costliest - 1][3]), about
    assert about["cost"] > 0, "choose a seed with a cost in that epoch"
    marks = exact.evaluate("[...document.querySelectorAll('#marks i')].map(i => Number(i.dataset.first))")
    costs = exact.evaluate("Array.from(new Float32Array(Uint8Array.from(atob(JSON.parse(document.getElementById('data').textContent).episodes[0][0].costs), c => c.charCodeAt(0)).buffer))")
    assert marks == [t + 1 for t, c in enumerate(costs) if c > 0 and (t == 0 or costs[t - 1] <= 0)], marks
    assert sum(costs) == about["cost"], sum(costs)
    picture = "(f) => { epoReplay.seek(f); epoReplay.draw(); return document.querySelector('#stage canvas').toDataURL() }"
    assert exact.evaluate(picture, 0) != exact.evaluate(picture, 500), "the pixels change over time"
    exact.evaluate("epoReplay.seek(0); epoReplay.draw()")  # the costs may all lie before frame 500
    exact.keyboard.press("n")
    expect(exact.locator("#hud .paid").first).to_contain_text("cost 1: hazards")
    exact.close()

    # an episode that is not the costliest is exact, too
    last = int(listed.last.locator("td").all_inner_texts()[-1])
    exact = replay(listed.last.locator("a"), "replay-recorded-last")
    expect(exact.locator("#notice")).to_contain_text("This is exactly the episode of training")
    about = json.loads(exact.locator("#data").text_content())["episodes"][0][0]["about"]
    assert last != costliest and about["return"] == float(rows[last - 1][2]), about
    exact.close()

    (run / "policies.bin").unlink()
    other = replay(listed.last.locator("a"), "replay-same-seed")
    expect(other.locator("#notice")).to_contain_text("This is not exactly the recorded episode")
    expect(other.locator("#notice code")).to_contain_text("--retrain")
    other.close()

    # the whole run: its costliest evaluation episodes, and where on the floor costs were paid
    page.keyboard.press("Escape")
    page.locator("#runtable button[data-run]").first.click()
    whole = replay(page.locator("#panelbody a", has_text="Replay the costliest"), "replay-worst")
    expect(whole.locator("#map")).to_be_visible()
    expect(whole.locator("#maptext")).to_contain_text("100 evaluation episodes")
    whole.close()
    watch.check()
    context.close()
    server.stop()


def look_around(browser, program, folder, make_runs, expect, shots):
    """Fails if filters, zoom, clicks, keys, links or exports do nothing."""
    for algo in ["epo", "ppo-lag"]:
        for seed in range(3):
            make_runs.write_run(folder, make_runs.TASKS[0], algo, seed, 60, episodes=60)
    make_runs.write_run(folder, make_runs.TASKS[1], "cpo", 0, 60)
    server = Server(program, folder)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page, watch = open_page(context, server.url)
    rows = page.locator("#runtable tbody tr")
    expect(rows).to_have_count(6)

    # the filter
    page.keyboard.press("/")
    page.keyboard.type("seed=1 epo")
    expect(rows).to_have_count(1)
    expect(page.locator("#groups li")).to_have_count(1)
    page.fill("#filter", "cpo")  # all of its runs are of another task
    expect(page.locator("#task")).to_have_value(make_runs.TASKS[1])
    expect(page.locator("#chart-main .chart").first).to_have_attribute("aria-label", re.compile("CPO "))
    page.fill("#filter", "nothing-matches")
    expect(page.locator("#empty")).to_contain_text("No run matches the filter")
    page.fill("#filter", "")
    expect(rows).to_have_count(6)

    # sorting: the highest cost first, then the lowest
    heads = page.locator("#runtable th button")
    heads.filter(has_text="Cost").click()
    costs = [float(t) for t in page.locator("#runtable tbody tr td:nth-child(6)").all_inner_texts()]
    assert costs == sorted(costs, reverse=True), costs
    heads.filter(has_text="Cost").click()
    costs = [float(t) for t in page.locator("#runtable tbody tr td:nth-child(6)").all_inner_texts()]
    assert costs == sorted(costs), costs

    # zoom by dragging; the address restores it in another tab
    page.evaluate("scrollTo(0, 0)")
    chart = page.locator("#chart-main .chart").nth(1)
    box = chart.bounding_box()
    x, y = box["x"], box["y"] + 120
    page.mouse.move(x + 150, y)
    page.mouse.down()
    page.mouse.move(x + 220, y, steps=6)
    page.mouse.move(x + 300, y, steps=6)
    page.mouse.up()
    expect(page.locator("#unzoom")).to_be_visible()
    assert "zoom=" in page.url, page.url
    other, other_watch = open_page(context, page.url)
    expect(other.locator("#unzoom")).to_be_visible()
    expect(other.locator("#runtable th[aria-sort=ascending]")).to_have_text("Cost")
    other_watch.check()
    other.close()
    page.locator("#unzoom").click()
    expect(page.locator("#unzoom")).to_be_hidden()
    assert "zoom=" not in page.url, page.url

    # a click on a curve lists the episodes of the epoch, the costliest first; a click there opens the replay
    page.mouse.click(x + 250, box["y"] + 200)
    page.wait_for_selector("#episodes tbody tr")
    costs = [float(t) for t in page.locator("#episodes tbody tr td:nth-child(3)").all_inner_texts()]
    assert len(costs) == 96 and costs == sorted(costs, reverse=True), costs
    with context.expect_page() as replay:
        page.locator("#episodes a").first.click()
    expect(replay.value.locator("p").first).to_contain_text(f"cost {costs[0]:g}")
    expect(replay.value.locator("#script")).to_have_text("script ran")
    replay.value.close()
    actions = set(page.locator("#episodes tbody tr td:nth-child(2)").all_inner_texts())
    assert actions == {"same seed"}, actions  # the only checkpoint is that of the last epoch
    page.set_viewport_size({"width": 400, "height": 900})
    expect(page.locator("#episodes a").first).to_be_in_viewport()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.keyboard.press("Escape")
    page.fill("#filter", "seed=1")
    expect(rows).to_have_count(2)
    page.evaluate("scrollTo(0, 0)")
    page.mouse.click(x + 250, box["y"] + 200)
    page.wait_for_selector("#episodes tbody tr")
    expect(page.locator("#episodes tbody tr")).to_have_count(32)
    page.keyboard.press("Escape")
    page.fill("#filter", "")
    expect(rows).to_have_count(6)

    # keys: seeds, band, axis, task, theme, penalty
    for key, part in [("s", "seeds=1"), ("b", "band=ci95"), ("x", "x=time"), ("p", "penalty=1"), ("d", "theme=")]:
        page.locator("main").focus()
        page.keyboard.press(key)
        expect(page.locator("#layout")).to_be_visible()
        page.wait_for_timeout(200)
        assert part in page.url, (key, page.url)
    expect(page.locator("#chart-penalty .card:visible").first).to_be_visible()
    page.keyboard.press("t")
    expect(page.locator("#task")).to_have_value(make_runs.TASKS[1])
    expect(rows).to_have_count(1)
    page.keyboard.press("t")
    expect(rows).to_have_count(6)
    expect(page.locator("#chart-main .chart").first).to_have_attribute("aria-label", re.compile("EPO "))
    # to another task and back before an answer comes: the curves must not stay empty
    page.evaluate("for (const _ of [0, 1]) dispatchEvent(new KeyboardEvent('keydown', { key: 't' }))")
    expect(page.locator("#chart-main .chart").first).to_have_attribute("aria-label", re.compile("EPO "))
    page.keyboard.press("?")
    expect(page.locator("#paneltitle")).to_have_text("Help")
    page.keyboard.press("Escape")

    # arrows move the cursor of a focused chart, and Enter lists episodes
    expect(page.locator("#chart-main .chart").first).to_have_attribute("aria-label", re.compile("EPO "))
    page.locator("#chart-main .chart").first.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_selector("#episodes tbody tr")
    page.keyboard.press("Escape")

    # groups can be hidden
    page.locator("#groups input").first.uncheck()
    expect(page.locator("#chart-main .chart").first).not_to_have_attribute("aria-label", re.compile(r"\bEPO "))
    expect(page.locator("#chart-main .chart").first).to_have_attribute("aria-label", re.compile("PPO-Lag "))
    assert "groups=" in page.url

    # exports
    with page.expect_download() as svg:
        page.locator("#chart-main button", has_text="SVG").first.click()
    texts = svg_texts(svg.value.path())
    assert "hours of training" in texts, texts
    assert "Return: mean of n = 3 runs, band: 95 % interval of the mean" in texts, texts
    expect(page.locator("#chart-main .card").nth(1)).to_contain_text("mean of the last 100 episodes")
    with page.expect_download() as csv:
        page.locator("#chart-main a", has_text="CSV").nth(1).click()
    lines = Path(csv.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("task,algorithm,quantity,") and len(lines) == 61, lines[:2]
    for link in ["#runscsv", "#chart-safety .card:first-child a"]:
        with page.expect_download() as csv:
            page.locator(link).click()
        assert len(Path(csv.value.path()).read_text(encoding="utf-8").splitlines()) == 7
    assert page.locator(".card").count() == page.locator(".card .tools button").count() == page.locator(".card .tools a").count()

    # one run
    page.locator("#runtable button[data-run]").first.click()
    expect(page.locator("#panelbody")).to_contain_text("run.limit")
    assert "run=" in page.url
    watch.check()
    context.close()
    server.stop()


def svg_texts(path):
    """Texts of an exported figure, each with its vertical position. Fails if the file is not XML."""
    texts = {}
    for element in xml.etree.ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text"):
        place = re.search(r"translate\(([-0-9.]+)[ ,]+([-0-9.]+)\)", element.get("transform", ""))
        texts["".join(element.itertext())] = float(place[2]) if place else float(element.get("y", 0))
    return texts


def links(browser, program, folder, make_runs, expect, shots):
    """Fails if a link that is pasted into the open tab does not restore zoom, colours, groups, order or the panel of a run."""
    for algo in ["epo", "ppo-lag"]:
        make_runs.write_run(folder, make_runs.TASKS[0], algo, 0, 60)
    server = Server(program, folder)
    page, watch = open_page(browser.new_context(color_scheme="light"), server.url)
    run = page.locator("#runtable button[data-run]").first.get_attribute("data-run")
    group = page.locator("#groups input").nth(1).get_attribute("data-group")
    picture = lambda: page.evaluate("document.querySelectorAll('#chart-main canvas')[1].toDataURL()")
    page.wait_for_timeout(900)
    plain = picture()
    go = lambda rest: (page.evaluate("hash => { location.hash = hash }", rest), page.wait_for_timeout(900))
    go("zoom=500000~900000")
    expect(page.locator("#unzoom")).to_be_visible()
    zoomed = picture()
    assert zoomed != plain, "the chart is zoomed"
    go("zoom=500000~900000&theme=dark&sort=cost&down=1")
    dark = picture()
    assert dark != zoomed and "zoom=" in page.url, page.url
    expect(page.locator("#runtable th[aria-sort=descending]")).to_have_text("Cost")
    go("theme=light")
    expect(page.locator("#unzoom")).to_be_hidden()
    assert picture() == plain, "the whole range in the first colours"
    go(f"groups={group}")
    expect(page.locator("#groups input").first).not_to_be_checked()
    go(f"run={run}")
    expect(page.locator("#panelbody")).to_contain_text("run.limit")
    go("x=time")
    expect(page.locator("#panel")).to_be_hidden()
    watch.check()
    page.context.close()
    server.stop()


def many_groups(browser, program, folder, make_runs, expect, shots):
    """Fails if more groups than colours look the same, if groups are left out silently, or if a legend covers the plot."""
    for i in range(21):
        run, _ = make_runs.write_run(folder / str(i), make_runs.TASKS[0], "epo", 0, 20)
        text = (run / "config.toml").read_text(encoding="utf-8")
        (run / "config.toml").write_text(text.replace("gamma = 0.99", f"gamma = 0.9{i:02d}"), encoding="utf-8")
    server = Server(program, folder)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page, watch = open_page(context, server.url)
    expect(page.locator("#groups li")).to_have_count(21)
    heads = page.locator("#chart-main .head")
    expect(heads.nth(1)).to_contain_text("8 of 21 groups shown")
    expect(page.locator("#chart-safety .chart").first).to_have_attribute("aria-label", re.compile("of 21 runs"))
    for dash in ["dashed", "dotted"]:
        assert page.locator(f"#groups .swatch[data-dash={dash}]").count() >= 5
        assert page.locator(f"#grouptable .swatch[data-dash={dash}]").count() >= 5
    page.locator("#all").click()
    expect(heads.nth(1)).not_to_contain_text("groups shown")
    page.evaluate("scrollTo(0, 0)")
    page.locator("#chart-main .chart").nth(1).hover()
    expect(page.locator(".tip").filter(has_text="and 7 more").first).to_be_visible()
    assert page.locator(".tip .swatch[data-dash=dashed]").count() >= 5
    for panel, below in [("#chart-main", "environment steps"), ("#chart-safety", "cost")]:
        with page.expect_download() as svg:
            page.locator(f"{panel} button", has_text="SVG").first.click()
        if shots:
            shots.mkdir(parents=True, exist_ok=True)
            svg.value.save_as(shots / f"legend{panel.replace('#', '-')}.svg")
        texts = svg_texts(svg.value.path())
        height = float(xml.etree.ElementTree.parse(svg.value.path()).getroot().get("height"))
        legend = [y for text, y in texts.items() if text.startswith("EPO")]
        assert len(legend) == 21, texts
        assert texts[below] + 6 < min(legend) and max(legend) < height, (texts[below], legend, height)
    # the tables can be scrolled with the keyboard, and their first column stays
    page.set_viewport_size({"width": 700, "height": 900})
    page.locator("#runtable").focus()
    page.locator("#runtable").evaluate("e => { e.scrollLeft = 300 }")
    box, cell = page.locator("#runtable").bounding_box(), page.locator("#runtable tbody td").first.bounding_box()
    assert abs(box["x"] - cell["x"]) < 2, (box, cell)
    watch.check()
    context.close()
    server.stop()


def sweeps(browser, program, folder, make_runs, expect, shots):
    """Fails if the progress of a sweep is not shown, or leaves out the runs that have not begun."""
    sweep = folder / "mine"
    for seed in range(2):
        make_runs.write_run(sweep / "runs", make_runs.TASKS[0], "epo", seed, 5)
    for run, file in [("a", "done.json"), ("b", "lease-0001")]:
        (sweep / "journal" / run).mkdir(parents=True)
        (sweep / "journal" / run / file).write_text("{}", encoding="utf-8")
    server = Server(program, folder)
    page, watch = open_page(browser.new_context(), server.url)
    expect(page.locator("#sweeps")).to_contain_text("mine 1 done, 1 begun")
    groups = [{"task": make_runs.TASKS[0], "algo": algo, "runs": runs} for algo, runs in [("epo", 3), ("ppo-lag", 2)]]
    (sweep / "plan.json").write_text(json.dumps({"planned": 5, "groups": groups}), encoding="utf-8")
    make_runs.write_run(sweep / "runs", make_runs.TASKS[0], "epo", 2, 5)
    expect(page.locator("#sweeps")).to_contain_text("mine 1 of 5 done, 1 begun, 3 to come", timeout=20_000)
    expect(page.locator("#sweeps")).to_contain_text(f"{make_runs.TASKS[0]}: EPO 3, PPO-Lag 2")
    (sweep / "journal" / "b" / "done.json").write_text("{}", encoding="utf-8")
    expect(page.locator("#sweeps")).to_contain_text("mine 2 of 5 done", timeout=20_000)
    assert page.locator("#sweeps progress").evaluate("p => [p.value, p.max]") == [2, 5]
    watch.check()
    page.context.close()
    server.stop()


def pictures(browser, program, folder, make_runs, expect, shots):
    """Fails if the page is wider than the screen, or if text has too little contrast."""
    for algo in make_runs.ALGOS:
        for seed in range(4):
            make_runs.write_run(folder, make_runs.TASKS[0], algo, seed, 120)
    server = Server(program, folder)
    for width in [1280, 400]:
        for theme in ["light", "dark"]:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
            page, watch = open_page(context, server.url, "#penalty=1")
            page.wait_for_selector("#chart-penalty .chart[data-drawn]")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for selector in ["h2", "#live", "#runtable td", ".hint", "th button", "#groups .name", ".good", ".bad"]:
                ratio = page.evaluate(CONTRAST, selector)
                assert ratio is None or ratio >= 4.5, (width, theme, selector, ratio)
            colours = page.evaluate(COLOURS)
            assert colours > 20, f"the chart is empty: {colours} colours"
            if shots:
                page.wait_for_timeout(500)
                shots.mkdir(parents=True, exist_ok=True)
                page.screenshot(path=shots / f"dash-{width}-{theme}.png", full_page=True)
            watch.check()
            context.close()
    server.stop()


# contrast of the first element that a selector matches, after WCAG 2
CONTRAST = """selector => {
  const element = document.querySelector(selector);
  if (!element || element.offsetParent === null) return null;
  const parts = text => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  let ground = element;
  while (ground && (parts(getComputedStyle(ground).backgroundColor)[3] ?? 1) === 0) ground = ground.parentElement;
  const [a, b] = [light(parts(getComputedStyle(element).color)), light(parts(getComputedStyle(ground ?? document.body).backgroundColor))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""

# number of different colours in the chart of the cost
COLOURS = """() => {
  const canvas = document.querySelectorAll("#chart-main canvas")[1];
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  return seen.size;
}"""


def hostile(browser, program, folder, make_runs, expect, shots):
    """Fails if text from a run folder becomes HTML anywhere. 100 payloads, 0 executions."""
    mark = "window.epoHacked=1"
    breaks = ["", "-->", "\"'`></textarea>", "</style></script>"]  # what may end the place that the text stands in
    payloads = [start + p.replace("X", mark) for p in XSS for start in breaks]
    for i, text in enumerate(payloads):
        safe = text.replace("/", "\u2215")[:120]
        run = folder / f"{safe}-{i}" / f"seed-000 {safe}"
        run.mkdir(parents=True)
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        algo = f"{quoted}" if i % 2 else "epo"
        config = f'[run]\ntask = "{"T" if i % 3 else quoted}"\nalgo = "{algo}"\nseed = {i}\nlimit = 25.0\nsteps = 10\n'
        (run / "config.toml").write_text(config + f'[algo]\n"{quoted}" = "{quoted}"\nx = "{quoted}"\n', encoding="utf-8")
        rows = f"Metrics/EpRet,Metrics/EpCost,TotalEnvSteps,{safe}\n1,30,10,{safe}\n"
        (run / "progress.csv").write_text(rows if i % 4 else f"{safe}\n", encoding="utf-8")
        (run / "episodes.csv").write_text(f"step,env,return,cost,length\n{safe},1,2,3,4\n10,0,1,2,3\n", encoding="utf-8")
        (run / "eval.json").write_text(f'{{"policy": "{quoted}", "episodes": 1, "hash": "{quoted}"}}', encoding="utf-8")
    server = Server(program, folder)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    watch = Watch(page, server.url)
    page.goto(server.url + "#settings=1")
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#live")).to_contain_text("broken")
    for task in page.locator("#task option").all():
        page.select_option("#task", task.get_attribute("value"))
        page.wait_for_timeout(150)
        for chart in page.locator("#chart-main .chart, #chart-safety .chart").all()[:3]:
            chart.hover()
    opened = 0
    for button in page.locator("#runtable button[data-run]").all()[:12]:
        button.click()
        page.wait_for_selector("#panel[open]")
        page.keyboard.press("Escape")
        opened += 1
    assert opened > 0
    for text in payloads:
        page.evaluate("document.getElementById('panel').close()")  # a link may have opened it
        page.fill("#filter", text)
        page.wait_for_timeout(10)
        page.goto(f"{server.url}#q={text}&task={text}&run={text}&sort={text}&groups={text}")
    page.wait_for_timeout(500)
    assert page.evaluate("window.epoHacked") is None
    assert page.locator("img:not([src='icon.svg']), iframe, object, embed, svg script").count() == 0
    watch.check("status of 404")  # a run that does not exist
    context.close()
    server.stop()
    print(f"  {len(payloads)} payloads, 0 executions")


def server_gone(browser, program, folder, make_runs, expect, shots):
    """Fails if the page hides that its numbers are old."""
    make_runs.write_run(folder, make_runs.TASKS[0], "epo", 0, 5)
    server = Server(program, folder)
    page, _ = open_page(browser.new_context(), server.url)
    expect(page.locator("#banner")).to_be_hidden()
    server.stop()
    expect(page.locator("#banner")).to_contain_text("does not answer")
    page.context.close()


def first_paint(browser, program, folder, make_runs, expect, runs, most):
    """Fails if the first paint is late, or if runs stay without a group. Also prints when the curves are drawn, which depends on the machine's load."""
    pairs = [(task, algo) for task in make_runs.TASKS for algo in make_runs.ALGOS]
    for i in range(runs):
        task, algo = pairs[i % len(pairs)]
        make_runs.write_run(folder, task, algo, i // len(pairs), 300)
    server = Server(program, folder)
    for visit in ["while the runs are read", "when they are read"]:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page, watch = open_page(context, server.url)
        drawn = page.evaluate("performance.getEntriesByName('drawn')[0].startTime") / 1000
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        print(f"first paint, {runs} runs, {visit}: {paint:.2f} s; allowed: {most} s; curves drawn: {drawn:.2f} s")
        assert paint < most, paint
        page.locator("#live", has_text="done").wait_for(timeout=60_000)
        # every run has come into its group, although the page asked while runs were read
        shown = page.inner_text("#runhint").split(" ")[0]
        pattern = re.compile(f"Return against cost of {shown} runs")
        expect(page.locator("#chart-safety .chart").first).to_have_attribute("aria-label", pattern)
        watch.check()
        context.close()
    server.stop()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    chromium()
    enter_environment()
    try:
        main()
    finally:
        for server in Server.all:
            server.stop()
