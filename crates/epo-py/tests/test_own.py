"""Claim: any Gymnasium environment can be trained on; what goes wrong in it is raised with its cause and its place."""

import os
import signal
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
    action = policy.predict(np.zeros(2))
    assert (isinstance(action, np.int64) and 0 <= action < 3) if discrete else (-2 <= action[0] <= 3)


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
    with pytest.raises(epo.EpoError, match="worker process . .*signal 9") as caught:
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
    with pytest.raises((epo.EpoError, ZeroDivisionError), match=text):
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
