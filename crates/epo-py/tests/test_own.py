"""Claim: any Gymnasium environment can be trained on; what goes wrong in it is raised with its cause and its place."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

import epo
from conftest import SMALL


class Line(gymnasium.Env):
    """Walk along a line: moving right earns a reward, being beyond 1 costs. Observation: position, time left."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 3.0, (1,), np.float32)

    def __init__(self, fails_at=None, dies_at=None, forgets=True, discrete=False, no_cost=False):
        self.fails_at, self.dies_at, self.forgets, self.no_cost = fails_at, dies_at, forgets, no_cost
        self.x, self.t, self.total = 0.0, 0, 0
        if discrete:
            self.action_space = gymnasium.spaces.Discrete(3, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        if self.forgets:
            self.x = float(self.np_random.uniform(-1, 1))
        return self._obs(), {}

    def _obs(self):
        return np.array([self.x, 1 - self.t / 20], np.float32)

    def step(self, action):
        self.t += 1
        self.total += 1
        if self.fails_at is not None and self.total >= self.fails_at:
            raise ZeroDivisionError("the motor is broken")
        if self.dies_at is not None and self.total >= self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        move = float(np.asarray(action).reshape(-1)[0])
        self.x += 0.1 * move
        info = {} if self.no_cost else {"cost": float(self.x > 1)}
        return self._obs(), move, False, self.t >= 20, info


def small(**more):
    return {**SMALL, "limit": 1.0, "progress": False, **more}


@pytest.mark.parametrize("discrete", [False, True])
def test_workers_and_this_process_give_the_same_run(tmp_path, discrete):
    """This test fails if an observation has the wrong row, a cost is lost, or a seed is shared."""
    runs = [
        epo.train(lambda: Line(discrete=discrete), runs=tmp_path / str(n), max_steps=20, workers=n, **small())
        for n in (0, 1, 3)
    ]
    assert len({run.hash for run in runs}) == 1
    assert runs[0].finished and runs[0].task == "Line"
    episodes = runs[0].episodes
    assert len(episodes["cost"]) > 50 and float(np.max(episodes["cost"])) > 0
    policy = runs[0].policy()
    assert policy.action_space == Line(discrete=True).action_space if discrete else policy.action_space.shape == (1,)
    for obs in np.random.default_rng(0).normal(size=(50, 2)):
        action = policy.predict(obs, deterministic=False)
        assert (isinstance(action, np.int64) and -1 <= action < 2) if discrete else (-2 <= action[0] <= 3)


def test_it_learns_to_stay_within_the_limit(tmp_path):
    run = epo.train(
        lambda: Line(), runs=tmp_path, max_steps=20, workers=0, limit=2.0, steps=40_000, envs=8, steps_per_epoch=2000,
        hidden=[32], final_eval_episodes=20, seed=1,
    )
    first, last = run.progress.iloc[0], run.progress.iloc[-1]
    assert last["Metrics/EpRet"] > first["Metrics/EpRet"] + 2, "the return grows"
    assert last["Metrics/EpCost"] < 4, "the cost stays near the limit of 2; walking right all the time costs 15"
    assert run.evaluation["task"] == "Line"
    report = epo.evaluate(run, env=Line, max_steps=20, episodes=5, workers=0)
    assert report["episodes"] == 5


def test_a_stopped_run_resumes_to_the_same_hash(tmp_path):
    whole = epo.train(Line, runs=tmp_path, max_steps=20, workers=2, **small())
    part = epo.train(Line, runs=tmp_path, max_steps=20, workers=2, callback=lambda row: False, **small())
    assert epo.resume(part, env=Line, max_steps=20, workers=2).hash == whole.hash


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_raises_is_named_with_its_exception(tmp_path, workers):
    with pytest.raises(epo.EpoError, match="Line: environment . failed at step .*the motor is broken") as caught:
        epo.train(lambda: Line(fails_at=150), runs=tmp_path, max_steps=20, workers=workers, check=False, **small())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_dead_worker_is_named_and_does_not_hang(tmp_path):
    begun = time.monotonic()
    with pytest.raises(epo.WorkerDied, match="worker process . .*signal 9.*the run is saved") as caught:
        epo.train(lambda: Line(dies_at=150), runs=tmp_path, max_steps=20, workers=2, check=False, **small())
    assert isinstance(caught.value.__cause__, epo.WorkerDied)
    assert time.monotonic() - begun < 60
    folder = next(tmp_path.glob("*/*"))
    assert epo.resume(folder, env=Line, max_steps=20, workers=2).finished, "nothing is lost"


def test_an_environment_that_remembers_is_refused(tmp_path):
    """An episode that depends on the one before cannot be resumed. The checker sees it before anything is made."""
    with pytest.raises(epo.ConfigError, match="cannot be trained on"):
        epo.train(lambda: Line(forgets=False), runs=tmp_path, max_steps=20, workers=0, **small())
    assert not list(tmp_path.iterdir())
    assert epo.check_env(Line, max_steps=20) == []


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: Line(no_cost=True), "info has no 'cost'"),
        (lambda: 7, "not a Gymnasium environment"),
        (lambda: 1 / 0, "division by zero"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_cannot_be_trained_on_is_refused(tmp_path, make, text, workers):
    with pytest.raises(epo.EpoError, match=text):
        epo.train(make, runs=tmp_path, max_steps=20, workers=workers, **small())


def test_unbounded_actions_and_ids_of_tasks_are_refused(tmp_path):
    class Wide(Line):
        action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    with pytest.raises(epo.EpoError, match="infinite bounds"):
        epo.train(Wide, runs=tmp_path, workers=0, **small())
    with pytest.raises(epo.ConfigError, match="belongs to a published task"):
        epo.train(Line, runs=tmp_path, workers=0, max_steps=20, id="SafetyPointGoal1-v0", **small())


def test_a_gymnasium_classic_with_a_cost_function(tmp_path):
    """The worked example of docs/python.md."""
    run = epo.train(
        lambda: gymnasium.make("Pendulum-v1"),
        cost_fn=lambda obs, action, next_obs, info: float(abs(np.arctan2(next_obs[1], next_obs[0])) > 2.5),
        runs=tmp_path,
        **small(steps=1600),
    )
    assert run.task == "Pendulum-v1" and run.finished
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=0)
    action = epo.load(run).predict(obs)
    assert env.action_space.contains(action.astype(np.float32))


def test_one_of_our_own_tasks_through_python_is_the_native_task(tmp_path):
    """The whole way through Python gives the bits of the native way."""
    args = dict(runs=tmp_path, envs=2, steps=800, steps_per_epoch=400, passes=2, minibatch=100, hidden=[8])
    args["final_eval_episodes"] = 0
    native = epo.train("SafetyPointGoal1-v0", **args)
    # the presets of a navigation task are not those of an unknown environment
    table = {f"train.{key}": value for key, value in native.config["train"].items() if key not in ("threads",)}
    table.update({f"algo.{key}": value for key, value in native.config["algo"].items()})
    settings = {key: value for key, value in table.items()}
    python = epo.train(
        lambda: epo.make("SafetyPointGoal1-v0"), id="Mine", settings=settings, runs=tmp_path, workers=0, steps=800,
        check=False,
    )
    for key in ("return", "cost", "length"):
        assert np.array_equal(native.episodes[key], python.episodes[key])
    a, b = native.policy(), python.policy()
    obs = np.random.default_rng(0).normal(size=(100, 60))
    assert np.array_equal(a.predict(obs), b.predict(obs))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("hang", ["time.sleep(1e6)", "while True: pass"])
def test_the_second_ctrl_c_ends_an_environment_that_hangs(tmp_path, workers, check, hang):
    """This test fails if signals are not looked at after the first one, or if the thread of the work is joined."""
    script = f"""
import atexit, os, signal, time
atexit.register(lambda: print("ended after", time.monotonic() - ends[0], flush=True))  # after epo's own function
import gymnasium, numpy as np, epo
ends = []
atexit.register(lambda: ends.append(time.monotonic()))  # before it
signal.signal(signal.SIGINT, signal.default_int_handler)
class Hung(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {{}}
    def step(self, action):
        os.write(1, b"hangs\\n")
        {hang}
try:
    epo.train(Hung, runs={str(tmp_path)!r}, workers={workers}, check={check}, envs=2, steps=100, steps_per_epoch=100,
              threads=1, progress=False, minibatch=10)
except KeyboardInterrupt as error:
    print("interrupted", error, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "hangs\n"
        for _ in range(2):
            time.sleep(0.3)
            assert child.poll() is None
            child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=30)
    finally:
        child.kill()
    assert "interrupted the second signal" in rest
    assert ("is saved up to its last checkpoint" in rest) != check
    assert child.returncode == 0
    assert float(rest.split()[-1]) < 5, "the end of the program does not wait for the environment"


@pytest.mark.parametrize("workers", [0, 1])
def test_exceptions_during_the_check_have_environment_seed_and_step(tmp_path, workers):
    kwargs = dict(runs=tmp_path, max_steps=20, workers=workers, **small())
    with pytest.raises(epo.EpoError, match="Line: step 5 of the episode with seed 0 failed: .*motor is broken") as caught:
        epo.train(lambda: Line(fails_at=5), **kwargs)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def quits():
        raise SystemExit(3)

    with pytest.raises(epo.EpoError, match="could not be made: SystemExit") as caught:
        epo.train(quits, **kwargs)
    assert not list(tmp_path.iterdir())


def test_a_dead_worker_during_the_check_does_not_say_that_a_run_is_saved(tmp_path):
    with pytest.raises(epo.WorkerDied, match="signal 9") as caught:
        epo.train(lambda: Line(dies_at=5), runs=tmp_path, max_steps=20, workers=1, **small())
    assert "saved" not in str(caught.value)


@pytest.mark.parametrize("result, text", [([1, 2], "a value of type list"), ((1, 2, 3, 4), "a tuple of 4")])
def test_a_wrong_number_of_values_is_refused(result, text):
    class Wrong(Line):
        def step(self, action):
            return result

    with pytest.raises(epo.EpoError, match=f"step returns observation.*not {text}"):
        epo.check_env(Wrong, max_steps=20)


def test_a_run_on_an_own_environment_asks_for_its_function(tmp_path):
    run = epo.train(Line, runs=tmp_path, max_steps=20, workers=0, check=False, **small(final_eval_episodes=0))
    for call in (epo.resume, epo.evaluate):
        with pytest.raises(epo.ConfigError, match="environment of your own: pass the function that makes it as env"):
            call(run)


@pytest.mark.parametrize(
    "kwargs, text",
    [
        ({"max_steps": 0}, "`max_steps` takes a whole number of at least 1, not 0"),
        ({"max_steps": -3}, "`max_steps`"),
        ({"workers": -1}, "`workers` takes a whole number of at least 0, not -1"),
        ({"callback": [1]}, "`callback` takes a function"),
    ],
)
def test_bad_numbers_of_an_own_environment_are_named(tmp_path, kwargs, text):
    with pytest.raises(epo.ConfigError, match=text):
        epo.train(Line, **{"runs": tmp_path, "max_steps": 20, "workers": 0, "check": False, **small(), **kwargs})


def test_a_function_that_cannot_be_pickled_is_named(tmp_path):
    lock = threading.Lock()
    with pytest.raises(epo.ConfigError, match="cannot be sent to worker processes.*workers=0"):
        epo.train(lambda: lock and Line(), runs=tmp_path, max_steps=20, workers=1, **small())


def test_a_cost_function_gets_the_observation_before_the_step(tmp_path):
    """This test fails if an environment that returns the same array every time changes the observation before."""

    class Shared(Line):
        array = np.zeros(2, np.float32)

        def _obs(self):
            self.array[:] = super()._obs()
            return self.array

    def changed(obs, action, next_obs, info):
        return float(np.array_equal(obs, next_obs))  # the second entry is the time, so they differ

    run = epo.train(Shared, cost_fn=changed, runs=tmp_path, max_steps=20, workers=0, check=False, **small(envs=1))
    assert float(np.max(run.episodes["cost"])) == 0


class Grid(Line):
    """Actions of the shape (2, 2), observations that are a dictionary."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2, 2), np.float32)
    observation_space = gymnasium.spaces.Dict({"x": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)})

    def _obs(self):
        return {"x": super()._obs()}

    def step(self, action):
        assert action.shape == (2, 2)
        return super().step(action)


@pytest.mark.parametrize("start", [0, 5])
def test_actions_of_a_policy_are_those_of_the_environment(tmp_path, start):
    """This test fails if the first value of a discrete space, the shape of a box or an old folder is forgotten."""

    class Counted(Line):
        action_space = gymnasium.spaces.Discrete(3, start=start)

    run = epo.train(Counted, runs=tmp_path, max_steps=20, workers=start % 2, check=False, **small(final_eval_episodes=0))
    policy = pickle.loads(pickle.dumps(epo.load(run)))
    many = policy.predict(np.random.default_rng(0).normal(size=(200, 2)), deterministic=False)
    assert set(many) == {start, start + 1, start + 2} and policy.action_space == Counted.action_space
    path = run.dir / "env.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "action_start"}))
    assert epo.load(run).predict(np.zeros(2)) < 3, "a folder of an earlier version"


def test_the_shape_of_an_action_and_a_dictionary_of_observations(tmp_path):
    run = epo.train(Grid, runs=tmp_path, max_steps=20, workers=0, check=False, **small(final_eval_episodes=0))
    policy, env = epo.load(run), Grid()
    obs, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match="gymnasium.spaces.flatten"):
        policy.predict(obs)
    action = policy.predict(gymnasium.spaces.flatten(env.observation_space, obs))
    assert action.shape == policy.action_space.shape == (2, 2)
    assert policy.predict(np.zeros((7, 2))).shape == (7, 2, 2)
    env.step(action)
