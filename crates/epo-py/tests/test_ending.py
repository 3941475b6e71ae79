"""Claim: a program that ends while its daemon threads are in the package ends with its own exit code, and saves its runs."""

import time

import pytest

import epo
from conftest import SMALL

pytest.importorskip("gymnasium")

BEGIN = """
import sys, threading, time
import gymnasium, numpy as np
import epo, epo.gym

class Own(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}
    def step(self, action):
        BODY
        return np.zeros(1, np.float32), 0.0, False, False, {"cost": 0.0}

small = SMALL
began = threading.Event()

def work():
    WORK

threading.Thread(target=work, daemon=True).start()
assert began.wait(60)
time.sleep(0.2)
sys.exit(3)
"""

STEP = """env = epo.make("SafetyPointGoal1-v0")
    env.reset(seed=0)
    while True:
        began.set()
        if env.step(np.zeros(2))[4]:
            env.reset()"""
VECTOR = """env = epo.gym.VecEnv("SafetyPointGoal1-v0", 8, threads=2)
    env.reset(seed=0)
    while True:
        began.set()
        env.step(np.zeros((8, 2)))"""
TRAIN = 'epo.train({task}, runs="runs", name="a", progress=False, callback=lambda row: began.set(), **small)'
OWN = TRAIN.format(task="Own, max_steps=20, check=False, workers={workers}")
EVALUATE = """run = epo.train("SafetyPointGoal1-v0", runs="runs", progress=False, **{**small, "steps": 400})
    began.set()
    epo.evaluate(run, episodes=100_000)"""


def program(work, body="pass"):
    small = {**SMALL, "steps": 400_000_000, "final_eval_episodes": 0}
    return BEGIN.replace("WORK", work).replace("BODY", body).replace("SMALL", repr(small))


@pytest.mark.parametrize("work", [STEP, VECTOR, EVALUATE], ids=["step", "vector", "evaluate"])
def test_a_call_of_a_daemon_thread_does_not_disturb_the_end(python, tmp_path, work):
    done = python(program(work), check=False, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.parametrize(
    "task, env",
    [('"SafetyPointGoal1-v0"', None), (0, "Own"), (2, "Own")],
    ids=["native", "this process", "workers"],
)
def test_a_training_of_a_daemon_thread_is_saved(python, tmp_path, task, env):
    """This test fails if the thread of the training asks for the interpreter after it has ended: Rust then aborts."""
    work = TRAIN.format(task=task) if env is None else OWN.format(workers=task)
    done = python(program(work), check=False, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (3, "")
    (folder,) = (tmp_path / "runs").glob("*/a")
    run = epo.Run(folder)
    rows = list(run.progress["TotalEnvSteps"])
    assert rows and not run.finished and run.policy().notes == []
    if env is None:
        more = epo.resume(run, callback=lambda row: False, progress=False)
        assert list(more.progress["TotalEnvSteps"]) == [*rows, rows[-1] + 400], "nothing is lost or repeated"


@pytest.mark.parametrize("hang", ["time.sleep(1e6)", "while True: pass"])
def test_an_environment_that_hangs_does_not_keep_the_program(python, tmp_path, hang):
    body = f"began.set(); exec({hang!r})"
    begun = time.monotonic()
    done = python(program(OWN.format(workers=0), body), check=False, cwd=tmp_path, timeout=120)
    assert done.returncode == 3 and "fatal" not in done.stderr.lower(), done
    assert time.monotonic() - begun < 60


def test_the_main_thread_can_go_on_in_its_own_exit_functions(python):
    """This test fails if the functions that ``atexit`` calls after ours cannot use an environment, or wait for ever."""
    script = """
import atexit, sys
def last():
    print(env.step(np.zeros(2))[0].shape, env.reset(seed=1)[0].shape)
    try:
        epo.train("SafetyPointGoal1-v0", steps=100)
    except epo.EpoError as error:
        print(error)
atexit.register(last)  # before epo is imported, so it runs after epo's own function
import numpy as np, epo
env = epo.make("SafetyPointGoal1-v0")
env.reset(seed=0)
sys.exit(3)
"""
    done = python(script, check=False, timeout=60)
    want = "(60,) (60,)\nnothing can be trained while the interpreter is ending\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, want, "")
