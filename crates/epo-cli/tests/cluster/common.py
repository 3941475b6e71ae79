"""Helpers that the tests on real clusters share."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL = """[base]
run.task = "SafetyPointGoal1-v0"
run.steps = {steps}
run.physics = "fast"
train.steps_per_epoch = 400
train.final_eval_episodes = 0
train.envs = 4
train.passes = 2
train.hidden = [16]
"""
BASE = SMALL + """train.minibatch = 100
[grid]
run.algo = ["epo", "ppo-lag"]
run.seed = {seeds}
"""
TUNE = SMALL + """[tune]
method = "{method}"
trials = 8
batch = 4
seeds = [0, 1]
rungs = [{rung}]
[space]
train.lr = {{ low = 1e-4, high = 1e-2, log = true }}
train.minibatch = [50, 100]
"""


@contextlib.contextmanager
def folder(prefix):
    """A temporary folder. It stays if the test in it fails."""
    root = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield root
    except BaseException:
        print(f"the files of the failed test are in {root}", file=sys.stderr)
        raise
    shutil.rmtree(root, ignore_errors=True)


def run_parts(test, parts):
    """Runs the parts of a test, which are its methods, and prints their results."""
    for part in parts:
        getattr(test, part)()
    print(json.dumps(test.results))


def sh(*command, check=True):
    """Runs a command and returns its output."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def sweep(epo, file, out, *more):
    """Runs `epo sweep` and returns how it ended and how many seconds it took."""
    begun = time.monotonic()
    done = subprocess.run([epo, "sweep", str(file), "--out", str(out), *more], capture_output=True, text=True)
    return done, time.monotonic() - begun


def expect(done, name, code=0):
    """Fails unless a command ended with an exit code."""
    if done.returncode != code:
        raise SystemExit(f"{name}: exit code {done.returncode} instead of {code}\n{done.stdout}{done.stderr}")


def refused(done, name, code, text):
    """Fails unless a command ended with an exit code and a message that contains a text."""
    expect(done, name, code)
    if text not in done.stderr:
        raise SystemExit(f"{name}: the message does not contain `{text}`:\n{done.stderr}")
    print(f"  {name}: code {code}, {done.stderr.strip().splitlines()[-1]}", flush=True)


def hashes(sweep, only=None):
    """Returns the hash of the newest checkpoint of every run, or of those in `only`, and fails if a row of a run was
    written twice. The runs must have stopped: a row is written before its checkpoint."""
    found = {}
    for run in sweep.glob("runs/*/*"):
        if only is not None and run.name not in only:
            continue
        newest = max(path for path in (run / "checkpoint").iterdir() if path.name.isdigit())
        found[run.name] = json.loads((newest / "manifest.json").read_text())["hash"]
        epochs = [line.split(",")[0] for line in (run / "progress.csv").read_text().splitlines()[1:]]
        assert len(epochs) == int(newest.name), f"{run}: {len(epochs)} rows in {newest.name} epochs"
    return found


def compare(sweep, want, name):
    """Fails unless the runs of a sweep have the given hashes."""
    got = hashes(sweep)
    assert got.keys() == want.keys(), f"{name}: {len(got)} runs instead of {len(want)}"
    different = [run for run in want if got[run] != want[run]]
    assert not different, f"{name}: {len(different)} hashes differ, the first is that of {different[0]}"


def trials(summary):
    """Returns the data that must be equal in two searches: the parameters, results and hashes of every trial."""
    keep = ("number", "parameters", "state", "rungs")
    runs = lambda trial: [(run["id"], run["hash"]) for run in trial["runs"]]  # noqa: E731
    return [({key: trial[key] for key in keep}, runs(trial)) for trial in json.loads(summary)["trials"]]


def search(epo, root, method, more, wait_for_work, tables=""):
    """Makes a search with `epo tune` here, and on an engine where it is killed once, and compares the trials.

    `wait_for_work` gets the folder of the second search, and returns when runs are at work. `tables` is appended to the
    file of the search.
    """
    file, out = root / "search.toml", root / f"search-{method}"
    file.write_text(TUNE.format(steps=16000, rung=6000, method=method) + tables)
    here = subprocess.run([epo, "tune", str(file), "--out", f"{out}-local", "--jobs", "2", "--json", "--quiet"],
                          capture_output=True, text=True)
    expect(here, f"tune, {method}, local")
    command = [epo, "tune", str(file), "--out", str(out), "--json", "--quiet", *more]
    begun = time.monotonic()
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_work(out)
    first.kill()
    first.communicate()
    assert first.returncode != 0, "the search ended before it was killed"
    again = subprocess.run(command, capture_output=True, text=True)
    expect(again, f"tune, {method}, continued")
    want, got = trials(here.stdout), trials(again.stdout)
    assert got == want, f"the trials differ:\n{got}\n{want}"
    states = [trial["state"] for trial, _ in want]
    assert states.count("stopped") >= 2 and states.count("finished") >= 2, states
    print(f"epo tune, {method}, killed and continued: {len(want)} trials with the hashes of the local search, "
          f"{states.count('finished')} continued after the first rung, {time.monotonic() - begun:.0f} s", flush=True)
