//! Claim: the page of a replay works in a real browser, headless Chromium.
//!
//! - The scene is drawn. Its pixels change from frame to frame, and not while it is paused.
//! - The marks are where costs were paid, and the keys work.
//! - Nothing is fetched, and hostile names do not run.
//!
//! The browser is `chromium` of the search path, or the one that the environment variable `EPO_CHROMIUM` names.
//! Without a browser, the tests say so and pass. `EPO_SCREENSHOTS=DIR` writes a picture of every page that is
//! opened.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

mod common;

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{old_run, replay, run};
use epo_lab::evaluate::ActionMode;
use epo_replay::{Choice, Replay, Request};
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// A browser with one page, driven over the DevTools protocol.
struct Browser {
    process: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: String,
    sent: u64,
    /// Keeps the profile of the browser and the pages.
    folder: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("EPO_CHROMIUM") {
        return Some(named.into());
    }
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

impl Browser {
    /// Starts the browser with more flags. `None`, with a message, if there is none.
    fn start(flags: &[&str]) -> Option<Self> {
        let Some(program) = chromium() else {
            eprintln!(
                "SKIPPED: no Chromium, so the page of a replay is not tested (Debian: apt-get install chromium)"
            );
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--remote-debugging-port=0",
                "--no-first-run",
                "--disable-sync",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .args(flags)
            .arg("about:blank")
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().strip_prefix("DevTools listening on ").map(str::to_owned));
        std::thread::spawn(move || lines.for_each(drop)); // a full pipe would stop the browser
        let (socket, _) = tungstenite::connect(address.expect("the browser names its address")).unwrap();
        let MaybeTlsStream::Plain(stream) = socket.get_ref() else { panic!("a local address") };
        stream.set_read_timeout(Some(Duration::from_secs(240))).unwrap();
        let mut browser = Self { process, socket, session: String::new(), sent: 0, folder };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session =
            browser.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        browser.call("Page.enable", json!({}));
        let watch = "window.violations = []; addEventListener('securitypolicyviolation', e => violations.push(e.violatedDirective)); \
                     window.errors = []; addEventListener('error', e => errors.push(String(e.message))); \
                     window.alert = () => { window.pwned = true };";
        browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": watch }));
        Some(browser)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let answer: Value = serde_json::from_str(text.as_str()).unwrap();
            if answer["id"] == json!(self.sent) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Opens the page of a replay in a window of this size and waits until it has drawn.
    fn open(&mut self, replay: &Replay, hash: &str, [width, height]: [u32; 2], dark: bool) {
        let file = self.folder.path().join("page.html");
        std::fs::write(&file, replay.to_html()).unwrap();
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", media);
        self.call("Page.navigate", json!({ "url": "about:blank" })); // a new hash alone would not load the page
        self.call("Page.navigate", json!({ "url": format!("file://{}{hash}", file.display()) }));
        let begun = Instant::now();
        while self.evaluate("!!window.epoReplay && epoReplay.drawn > 0") != json!(true) {
            assert!(begun.elapsed() < Duration::from_secs(200), "errors: {}", self.evaluate("window.errors"));
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(self.evaluate("errors.concat(violations)"), json!([]), "errors of the page");
    }

    fn press(&mut self, key: &str) {
        let mut down = json!({ "type": "keyDown", "key": key });
        if key.len() == 1 {
            down["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    }

    /// Goes to a frame, draws it, and returns a digest of the pixels of the scene and their number of colours.
    fn pixels(&mut self, frame: usize) -> (String, u64) {
        let digest = "(() => { epoReplay.seek(FRAME); epoReplay.draw(); const from = document.querySelector('#stage canvas'); \
            const copy = document.createElement('canvas'); [copy.width, copy.height] = [from.width, from.height]; \
            const pen = copy.getContext('2d'); pen.drawImage(from, 0, 0); \
            const data = new Uint32Array(pen.getImageData(0, 0, copy.width, copy.height).data.buffer); \
            let hash = 0; for (const p of data) hash = (Math.imul(hash, 31) + p) | 0; \
            return [String(hash), new Set(data).size] })()";
        let got = self.evaluate(&digest.replace("FRAME", &frame.to_string()));
        (got[0].as_str().unwrap().to_owned(), got[1].as_u64().unwrap())
    }

    fn screenshot(&mut self, name: &str) {
        use base64::Engine as _;
        let Some(folder) = std::env::var_os("EPO_SCREENSHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        let png = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), png).unwrap();
    }
}

/// The frames at which a cost begins to be paid.
fn starts(costs: &[f64]) -> Vec<usize> {
    (1..=costs.len()).filter(|&f| costs[f - 1] > 0.0 && (f == 1 || costs[f - 2] <= 0.0)).collect()
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(mut browser) = Browser::start(&[]) else { return };
    let request = Request {
        choice: Choice::Worst(2),
        episodes: 8,
        mode: ActionMode::Sampled,
        ..Request::new(old_run())
    };
    let shown = replay(&request);
    let recording = &shown.episodes[0][0].recording;
    let (steps, starts) = (recording.steps(), starts(&recording.costs));
    assert!(!starts.is_empty(), "an episode with a cost");

    browser.open(&shown, "", [700, 500], false);
    assert_eq!(browser.evaluate("epoReplay.webgl"), json!(true), "three dimensions");
    let notes = browser.evaluate("document.getElementById('notes').textContent");
    assert!(notes.as_str().unwrap().contains("0.3.0"), "the note about the version is shown: {notes}");
    let (first, colours) = browser.pixels(0);
    assert!(colours > 100, "{colours} colours");
    assert_eq!(browser.pixels(0).0, first, "the same frame gives the same pixels");
    let (later, _) = browser.pixels(steps / 2);
    assert_ne!(first, later, "pixels change over time");
    let robot = browser.evaluate(&format!("epoReplay.robot({})", steps / 2));
    let want = recording.poses[steps / 2][recording.robot];
    for axis in 0..3 {
        assert!((robot[axis].as_f64().unwrap() - want[axis]).abs() < 1e-3, "{robot} {want:?}");
    }

    // marks
    let marks =
        browser.evaluate("[...document.querySelectorAll('#marks i')].map(i => Number(i.dataset.first))");
    assert_eq!(marks, json!(starts), "one mark for each stretch of costs");
    let places = browser.evaluate(
        "[...document.querySelectorAll('#marks i')].map(i => { const b = i.getBoundingClientRect(), p = i.parentNode.getBoundingClientRect(); \
         return (b.left - p.left) / p.width })",
    );
    for (place, first) in places.as_array().unwrap().iter().zip(&starts) {
        let want = (*first as f64 - 0.5) / steps as f64;
        assert!((place.as_f64().unwrap() - want).abs() < 2e-3, "frame {first}: {place} instead of {want}");
    }

    // keys
    browser.evaluate("epoReplay.seek(0)");
    for want in starts.iter().take(3) {
        browser.press("n");
        browser.evaluate("epoReplay.draw()");
        assert_eq!(browser.evaluate("epoReplay.frame"), json!(want));
        assert_eq!(
            browser.evaluate("document.getElementById('stage').classList.contains('paid')"),
            json!(true)
        );
    }
    browser.press("ArrowLeft");
    assert_eq!(browser.evaluate("epoReplay.frame"), json!(starts[starts.len().min(3) - 1] - 1));

    // nothing is drawn while nothing changes; playing moves on
    let wait = "new Promise(done => setTimeout(() => done(epoReplay.drawn), 700))";
    browser.evaluate(wait);
    let still = browser.evaluate("epoReplay.drawn");
    assert_eq!(browser.evaluate(wait), still, "drawn while paused");
    browser.evaluate("epoReplay.seek(0)");
    browser.press(" ");
    browser.evaluate("new Promise(done => { const look = () => epoReplay.frame > 3 ? done() : setTimeout(look, 50); look() })");
    browser.press(" ");

    // another episode, the time line, and nothing from a network
    browser.evaluate("epoReplay.choose(1)");
    let second = &shown.episodes[1][0].recording;
    assert_eq!(browser.evaluate("epoReplay.marks[0].length"), json!(self::starts(&second.costs).len()));
    assert!(browser.evaluate("document.querySelectorAll('.lane canvas').length").as_u64().unwrap() >= 6);
    assert_eq!(browser.evaluate("document.getElementById('map').hidden"), json!(false));
    assert_eq!(
        browser.evaluate(
            "performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('data:'))"
        ),
        json!([])
    );
    browser.evaluate("epoReplay.choose(0); epoReplay.jump(1); epoReplay.draw()");
    browser.screenshot("goal-light");
}

#[test]
fn a_browser_without_webgl_shows_two_dimensions_and_says_so() {
    let Some(mut browser) = Browser::start(&["--disable-3d-apis"]) else { return };
    let shown =
        replay(&Request { choice: Choice::Seed(5), mode: ActionMode::Sampled, ..Request::new(old_run()) });
    browser.open(&shown, "", [700, 500], false);
    assert_eq!(browser.evaluate("epoReplay.webgl"), json!(false));
    let word = browser.evaluate("document.getElementById('word').textContent");
    assert!(
        word.as_str().unwrap().contains("no WebGL") && word.as_str().unwrap().contains("from above"),
        "{word}"
    );
    let (first, colours) = browser.pixels(0);
    assert!(colours > 20, "{colours} colours");
    assert_ne!(first, browser.pixels(500).0);
    browser.screenshot("goal-2d");

    // the words about WebGL do not lie over the names of two policies
    let pair = Request { choice: Choice::Seed(5), against: Some(old_run()), ..Request::new(old_run()) };
    for size in [[900, 600], [400, 700]] {
        browser.open(&replay(&pair), "", size, false);
        let overlap = "(() => { const w = document.getElementById('word').getBoundingClientRect(); \
            return [...document.querySelectorAll('#sides span')].filter(s => { const b = s.getBoundingClientRect(); \
            return b.left < w.right && b.right > w.left && b.top < w.bottom && b.bottom > w.top }).length })()";
        assert_eq!(browser.evaluate(overlap), json!(0));
        assert_eq!(browser.evaluate("document.querySelectorAll('#sides span').length"), json!(2));
    }
    browser.screenshot("pair-2d");
}

/// This test fails if the page does not say above the scene whether it shows the recorded episode, and how, if a link to a
/// frame needs a new page, or if a map without costs looks like a map.
#[test]
fn a_replay_of_training_says_above_the_scene_whether_it_is_exact() {
    let Some(mut browser) = Browser::start(&[]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let set = ["run.steps=2000", "train.steps_per_epoch=1000", "train.envs=2", "train.passes=1"];
    let config = run(dir.path(), "SafetyPointCircle1-v0", &set, true);
    let rows = epo_replay::training_episodes(dir.path(), &config).unwrap();
    let policies = dir.path().join("policies.bin");
    let checkpoint = "computed again from the checkpoint after 1 epoch.";
    let values = "The values below are those of the critics after 2 epochs";
    for (row, exact, why) in [(1, true, values), (rows.len(), true, checkpoint), (2, false, "not exactly")] {
        if !exact {
            std::fs::remove_file(&policies).unwrap();
        }
        let choice = Choice::Training { row, retrain: false };
        let mut shown = replay(&Request { choice, ..Request::new(dir.path()) });
        shown.map = Some(epo_replay::CostMap {
            episodes: 7,
            origin: [0.0; 2],
            cell: 1.0,
            size: [1, 1],
            cost: vec![0.0],
        });
        browser.open(&shown, "#frame=3", [400, 700], false);
        let notice = "(() => { const n = document.getElementById('notice'), s = document.getElementById('stage'); \
            return [n.hidden, n.textContent, n.getBoundingClientRect().bottom <= s.getBoundingClientRect().top] })()";
        let got = browser.evaluate(notice);
        let text = got[1].as_str().unwrap();
        assert_eq!((&got[0], &got[2]), (&json!(false), &json!(true)), "above the scene: {got}");
        assert_eq!(text.contains("This is exactly the episode of training"), exact, "row {row}: {text}");
        assert!(text.contains(why), "row {row}: {text}");
        if !exact {
            let (cost, length) = (rows[row - 1].cost, rows[row - 1].length);
            let recorded = format!("cost {cost}, {length} steps. Replayed");
            let command = format!("--training {row} --retrain");
            assert!(text.contains(&recorded) && text.contains(&command), "{text}");
        }
        browser.screenshot(&format!("training-400-{row}"));
        assert_eq!(browser.evaluate("epoReplay.frame"), json!(3));
        browser.evaluate("location.hash = 'frame=40'; new Promise(done => setTimeout(done, 200))");
        assert_eq!(browser.evaluate("epoReplay.frame"), json!(40));
        let map =
            "[document.getElementById('maptext').textContent, document.getElementById('mapcanvas').hidden]";
        let map = browser.evaluate(map);
        assert!(
            map[0].as_str().unwrap().starts_with("No cost was incurred in 7 episodes")
                && map[1] == json!(true),
            "{map}"
        );
        assert_eq!(
            browser.evaluate("document.getElementById('play').textContent"),
            json!("Play"),
            "no special signs"
        );
    }
}

#[test]
fn themes_widths_walkers_pairs_and_hostile_names() {
    let Some(mut browser) = Browser::start(&[]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let evil = dir.path().join("<img src=x onerror=alert(1)>");
    run(&evil, "SafetyHopperVelocity-v1", &["train.envs=1", "run.seed=1"], false);
    let second = dir.path().join("second");
    run(&second, "SafetyHopperVelocity-v1", &["train.envs=1", "run.seed=2"], false);
    let pair = Request { against: Some(second), mode: ActionMode::Sampled, ..Request::new(&evil) };
    let shown = replay(&pair);
    let mut skies = Vec::new();
    for (dark, size) in [(false, [900, 600]), (true, [400, 700])] {
        browser.open(&shown, "", size, dark);
        assert_eq!(browser.evaluate("epoReplay.marks.length"), json!(2), "two policies");
        let wide = browser.evaluate("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= u64::from(size[0]), "the page is {wide} pixels wide in a window of {}", size[0]);
        assert_ne!(browser.pixels(0), browser.pixels(10));
        skies.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
        let shown = browser.evaluate("document.getElementById('what').textContent");
        assert!(shown.as_str().unwrap().contains("<img src=x onerror=alert(1)>"), "names are shown as text");
        assert_eq!(browser.evaluate("!!window.pwned || document.images.length > 0"), json!(false));
        browser.screenshot(if dark { "hopper-dark" } else { "hopper-light" });
    }
    assert_ne!(skies[0], skies[1], "dark and light");
}
