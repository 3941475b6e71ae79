"""Claim: a training from Python is the training of the command line, and nothing that goes wrong loses a run."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import epo
from conftest import SMALL

TASK = "SafetyPointGoal1-v0"
FLAGS = "--steps 1600 --envs 4 --set train.steps_per_epoch=400 --set train.passes=2 --set train.hidden=[16]"
FLAGS = f"{FLAGS} --set train.minibatch=100 --set train.final_eval_episodes=2".split()


def test_the_run_is_that_of_the_command_line(tmp_path, small, cli):
    """This test fails if a setting is lost or converted, or if the evaluation is left out."""
    printed = cli("train", TASK, *FLAGS, "--seed", 3, "--limit", 10, "--runs", tmp_path / "a").stdout
    folder, hash = (line.split(" ", 1)[1] for line in printed.splitlines()[:2])
    run = epo.train(TASK, seed=3, limit=10, runs=tmp_path / "b", **small)
    assert run.hash == hash == epo.Run(folder).hash
    assert run.finished is True and run.config == epo.Run(folder).config
    for name in ("config.toml", "episodes.csv", "eval.json"):
        assert (run.dir / name).read_bytes() == (epo.Run(folder).dir / name).read_bytes(), name
    assert run.dir.parent.name == "EPO-{SafetyPointGoal1-v0}"


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_the_run(tmp_path, small, threads):
    hashes = {epo.train(TASK, runs=tmp_path, threads=n, **small).hash for n in (threads, 2)}
    assert len(hashes) == 1


def test_callbacks_see_every_row_and_can_stop(tmp_path, small):
    rows = []
    whole = epo.train(TASK, runs=tmp_path, callback=rows.append, **small)
    assert [row["TotalEnvSteps"] for row in rows] == [400, 800, 1200, 1600]
    assert rows[0]["Metrics/EpRet"] is None, "no episode has ended yet"
    stopped = epo.train(TASK, runs=tmp_path, callback=lambda row: row["TotalEnvSteps"] < 800, **small)
    assert not stopped.finished
    assert len((stopped.dir / "progress.csv").read_text().splitlines()) == 3, "a header and two rows"
    assert stopped.hash != whole.hash
    again = stopped.resume()
    assert again.finished and again.hash == whole.hash


def test_a_run_is_what_its_folder_is(tmp_path, small):
    """This test fails if hash, settings or record are those of the time when the object was made."""
    run = epo.train(TASK, runs=tmp_path, **small)
    before = run.hash
    longer = epo.resume(run, steps=2400)
    assert longer.hash == run.hash == epo.Run(run.dir).hash != before
    assert run.config["run"]["steps"] == 2400 and run.finished
    assert list(run.progress["TotalEnvSteps"])[-1] == 2400


def test_a_changed_folder_goes_on_only_if_the_changes_are_accepted(tmp_path, small):
    """This test fails if ``accept_changes`` is lost, or if a changed folder goes on without it."""
    stopped = epo.train(TASK, runs=tmp_path, callback=lambda row: row["TotalEnvSteps"] < 800, **small)
    config = stopped.dir / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("limit = 25", "limit = 24"))
    assert config.read_text() != text
    with pytest.raises(epo.EpoError, match="run.limit.*resume with accept_changes=True"):
        epo.resume(stopped)
    assert not (stopped.dir / "changes.json").exists()
    again = epo.resume(stopped, accept_changes=True)
    assert again.finished and "run.limit" in (again.dir / "changes.json").read_text()


def test_an_exception_in_a_callback_is_raised_and_the_run_is_saved(tmp_path, small):
    whole = epo.train(TASK, runs=tmp_path, **small)

    def bad(row):
        if row["TotalEnvSteps"] == 800:
            raise KeyError("oh")

    with pytest.raises(KeyError, match="oh"):
        epo.train(TASK, runs=tmp_path, name="bad", callback=[bad], **small)
    folder = tmp_path / "EPO-{SafetyPointGoal1-v0}" / "bad"
    assert epo.resume(folder).hash == whole.hash


def test_ctrl_c_saves_and_raises(tmp_path, small):
    """This test fails if a training holds the interpreter lock, or if an interrupt loses the epoch."""
    small["steps"] = 8000
    script = f"""
import epo, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests run in the background
def slow(row):
    print("row", flush=True)
    time.sleep(0.2)
try:
    epo.train({TASK!r}, runs={str(tmp_path)!r}, name="c", callback=slow, **{small!r})
except KeyboardInterrupt as error:
    print("interrupted:", error, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    for _ in range(2):
        assert child.stdout.readline() == "row\n"
    child.send_signal(signal.SIGINT)
    text = child.stdout.read().strip().splitlines()[-1]
    assert child.wait(60) == 0
    folder = tmp_path / "EPO-{SafetyPointGoal1-v0}" / "c"
    assert text == f"interrupted: the run is saved; continue with epo.resume({str(folder)!r})"
    assert not epo.Run(folder).finished
    assert epo.resume(folder).hash == epo.train(TASK, runs=tmp_path, **small).hash


@pytest.mark.parametrize(
    "kwargs, text",
    [
        ({"gama": 0.9}, r"there is no `train.gama`; did you mean `train.gamma`\?"),
        ({"gamma": "x"}, "`train.gamma` takes a number"),
        ({"gamma": 2.0}, "gamma"),
        ({"settings": {"train.gamme": 1}}, "did you mean `train.gamma`"),
        ({"algo": "eppo"}, "there is no algorithm `eppo`; did you mean `epo`"),
        ({"steps": -5}, "`run.steps = -5`: must be at least 1"),
        ({"steps": float("nan")}, "run.steps"),
        ({"hidden": [64, 0]}, "train.hidden"),
        ({"hidden": object()}, "takes a number, a text"),
        ({"limit": -1}, "run.limit"),
        ({"name": "../x"}, "the name of one folder"),
        ({"cost_fn": lambda *a: 0.0}, "environments of your own"),
        ({"task": 7}, "task is an id or a function"),
        ({"algo": "cpo", "target_kl": 0.5}, r'two settings, `train.target_kl` and `algo.target_kl`.*settings=\{"algo.target_kl"'),
        ({"callback": [1]}, "`callback` takes a function"),
        ({"callback": 3}, "`callback` takes a function or a list of functions, not 3"),
        ({"settings": [1]}, "`settings` takes a dictionary"),
        ({"task": "SafetyPointGoal9-v0"}, "unknown task `SafetyPointGoal9-v0`; did you mean"),
    ],
)
def test_wrong_settings_have_the_errors_of_the_command_line(tmp_path, kwargs, text):
    with pytest.raises(epo.ConfigError, match=text):
        epo.train(**{"task": TASK, "runs": tmp_path, **kwargs})
    assert not list(tmp_path.glob("*/*")), "nothing was made"


def test_names_of_settings_find_their_table(tmp_path, small):
    """This test fails if a full name is changed, `lambda_` is refused, or a file's algorithm is not looked at."""
    stop = dict(runs=tmp_path, callback=lambda row: np.False_, **dict(small, final_eval_episodes=0))
    run = epo.train(TASK, algo="cpo", settings={"algo.target_kl": 0.5}, lambda_=0.9, lambda_c=0.8, **stop)
    assert run.config["algo"]["target_kl"] == 0.5 and run.config["train"]["target_kl"] != 0.5
    assert (run.config["train"]["lambda"], run.config["train"]["lambda_c"]) == (0.9, 0.8)
    assert not run.finished, "np.False_ stops a run"
    file = tmp_path / "c.toml"
    file.write_text('[run]\nalgo = "cpo"\n')
    assert epo.train(TASK, config=file, damping=0.2, **stop).config["algo"]["damping"] == 0.2


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda run: run.resume(steps="a"), "`steps` takes a whole number of at least 0, not 'a'"),
        (lambda run: run.resume(steps=float("inf")), "`steps`"),
        (lambda run: run.resume(threads=-1), "`threads`"),
        (lambda run: run.evaluate(threads=-1), "`threads`"),
        (lambda run: run.evaluate(episodes=0), "`episodes` takes a whole number of at least 1, not 0"),
        (lambda run: run.policy().seed(-1), "a seed is from 0"),
    ],
)
def test_bad_numbers_are_named(stopped, call, text):
    with pytest.raises(ValueError, match=text):
        call(stopped)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return epo.train(TASK, runs=tmp_path_factory.mktemp("runs"), callback=lambda row: False, **SMALL)


def test_a_name_is_used_once(tmp_path, small):
    epo.train(TASK, runs=tmp_path, name="one", **small)
    with pytest.raises(epo.ConfigError, match="already a run folder"):
        epo.train(TASK, runs=tmp_path, name="one", **small)


def test_two_trainings_at_once(tmp_path, small):
    """Different folders train side by side; a second training of the same folder is refused."""
    want = [epo.train(TASK, seed=seed, runs=tmp_path, **small).hash for seed in (0, 1)]
    got = [None, None]

    def work(i):
        got[i] = epo.train(TASK, seed=i, runs=tmp_path / "at-once", **small).hash

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert got == want
    seen = []

    def nested(row):
        try:
            epo.resume(tmp_path / "EPO-{SafetyPointGoal1-v0}" / "locked")
        except epo.EpoError as error:
            seen.append(str(error))
        return False

    epo.train(TASK, runs=tmp_path, name="locked", callback=nested, **small)
    assert seen and "in use by" in seen[0]


def test_a_folder_that_is_no_run_is_named(tmp_path):
    for call in (epo.Run, epo.load, epo.resume, epo.evaluate):
        with pytest.raises(epo.EpoError, match="not a run folder"):
            call(tmp_path)


def test_the_record_is_a_frame(tmp_path, small, monkeypatch):
    run = epo.train(TASK, runs=tmp_path, **dict(small, steps=4000))
    pandas = pytest.importorskip("pandas")
    assert isinstance(run.progress, pandas.DataFrame) and list(run.progress["TotalEnvSteps"])[-1] == 4000
    assert list(run.episodes.columns) == ["step", "env", "return", "cost", "length"], run.episodes.columns
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    columns = run.progress
    assert isinstance(columns["Metrics/EpRet"], np.ndarray) and np.isnan(columns["Metrics/EpRet"][0])
    assert run.evaluation["episodes"] == 2


def test_frames_of_polars_have_the_same_types_in_every_run(tmp_path, monkeypatch):
    """A column may be empty, or have whole numbers in one run and fractions in another."""
    from epo import _train

    polars = pytest.importorskip("polars")
    monkeypatch.setitem(sys.modules, "pandas", None)
    frames = []
    for name, rows in (("a", "1,\n2,\n"), ("b", "3,0.5\n"), ("c", "")):
        path = tmp_path / name
        path.write_text("TotalEnvSteps,Metrics/EpCost\n" + rows)
        frames.append(_train._frame(path))
    assert polars.concat(frames).shape == (3, 2)
    assert all(frame.schema["Metrics/EpCost"] == polars.Float64 for frame in frames)


def test_evaluate_is_that_of_the_command_line(tmp_path, small, cli):
    run = epo.train(TASK, runs=tmp_path, **small)
    ours = run.evaluate(episodes=3, seed=5)
    theirs = json.loads(cli("eval", run.dir, "--episodes", 3, "--seed", 5, "--json").stdout)
    assert ours["return"] == theirs["return"] and ours["cost"] == theirs["cost"]


def test_the_command_line_of_the_package(cli, tmp_path):
    assert "SafetyPointGoal1-v0" in cli("tasks").stdout
    assert cli("--version").stdout.split()[1] == epo.__version__
    wrong = cli("train", "SafetyPointGoal9-v0", check=False)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: unknown task"), wrong
    assert cli("no-such-command", check=False).returncode == 2
    model = cli("model", TASK, "--seed", 3).stdout
    assert model.strip() == epo.model(TASK, seed=3).strip()


def test_a_sweep_starts_its_runs_with_this_interpreter(tmp_path, capfd):
    """This test fails if a sweep starts `python train …`."""
    file = tmp_path / "sweep.toml"
    base = "run.steps = 800\ntrain.envs = 4\ntrain.steps_per_epoch = 400\ntrain.passes = 2\ntrain.minibatch = 100\n"
    file.write_text(f"[base]\n{base}train.final_eval_episodes = 0\n[grid]\nrun.seed = [0, 1]\n")
    summary = epo.sweep(file, out=tmp_path / "out", jobs=2, progress=True)
    assert summary["done"] == 2, summary
    assert "2 of 2 done" in capfd.readouterr().err
    assert epo.sweep(file, out=tmp_path / "out", progress=False) == summary
    assert capfd.readouterr().err == ""
    file.write_text("[grid]\nrun.sed = [0]\n")
    with pytest.raises(epo.ConfigError, match="run.seed"):
        epo.sweep(file, out=tmp_path / "out2")


def test_ctrl_c_of_the_command_line_can_be_resumed(tmp_path):
    command = [sys.executable, "-m", "epo", "train", TASK, *FLAGS, "--steps", "4000000", "--runs", str(tmp_path)]
    command.remove("1600"), command.remove("--steps")
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("*/*/progress.csv")):
        time.sleep(0.05)
        assert child.poll() is None, child.stderr.read()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 75, (out, err)
    assert "epo train --resume" in err


def test_no_disk_is_an_os_error(tmp_path, small):
    if os.geteuid() == 0:
        target = "/proc/none"
    else:
        target = "/root/none"
    with pytest.raises(OSError):
        epo.train(TASK, runs=target, **small)
