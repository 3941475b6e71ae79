"""Claim: tasks have the interface and the numbers of Safety-Gymnasium, and bad input is an exception with a clear text."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import epo
from conftest import RECORDINGS


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.npz")), ids=lambda path: path.stem)
def test_recorded_episodes_are_reproduced(path):
    """This test fails if the seed is wrong, an observation is a view of a buffer, or an action is rounded to float32."""
    data = np.load(path)
    meta = json.loads(str(data["meta"]))
    env = epo.make(meta["env_id"])
    obs, _ = env.reset(seed=meta["seed"])
    seen, rewards, costs, parts = [obs], [], [], []
    for action in data["action"]:
        obs, reward, cost, terminated, truncated, info = env.step(action)
        seen.append(obs)
        rewards.append(reward)
        costs.append(cost)
        parts.append([info.get(name, 0.0) for name in meta["cost_names"]])
        if terminated or truncated:
            break
    n = len(rewards)
    assert n == len(data["action"])
    assert np.abs(np.array(seen) - data["obs"][: n + 1]).max() <= 1e-8
    assert np.abs(np.array(rewards) - data["reward"][:n]).max() <= 1e-8
    assert np.array_equal(costs, data["cost"][:n])
    known = [i for i, name in enumerate(meta["cost_names"]) if name != "cost_sum"]
    if known:
        assert np.abs(np.array(parts)[:, known] - data["costs"][:n][:, known]).max() <= 1e-8


def test_info_has_the_keys_of_the_package():
    env = epo.make("SafetyPointGoal1-v0")
    env.reset(seed=0)
    info = env.step(np.zeros(2))[-1]
    assert set(info) == {"cost_hazards", "cost_sum"} or {"cost_hazards", "cost_sum"} <= set(info), info
    assert "cost_exception" not in info and "goal_met" not in info


def test_episodes_without_a_seed_continue_the_last_seed():
    """This test fails if a reset repeats the episode, or is not determined by the seed."""
    first, second = epo.make("SafetyPointGoal1-v0"), epo.make("SafetyPointGoal1-v0")
    runs = []
    for env in (first, second):
        obs = [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]
        runs.append(obs)
    assert all(np.array_equal(a, b) for a, b in zip(*runs))
    assert not np.array_equal(runs[0][0], runs[0][1]) and not np.array_equal(runs[0][1], runs[0][2])
    assert not np.array_equal(epo.make("SafetyPointGoal1-v0").reset()[0], epo.make("SafetyPointGoal1-v0").reset()[0])


@pytest.mark.parametrize("again", [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy, copy.copy])
def test_copies_continue_the_episode(again):
    env = epo.make("SafetyCarButton1-v0")
    env.reset(seed=5)
    for _ in range(30):
        env.step(env.action_space.sample())
    other = again(env)
    for _ in range(30):
        action = env.action_space.sample()
        ours, theirs = env.step(action), other.step(action)
        assert np.array_equal(ours[0], theirs[0]) and ours[1:3] == theirs[1:3]
    assert np.array_equal(env.reset()[0], other.reset()[0])


def test_physics_can_be_fast():
    obs = {}
    for physics in ("published", "fast"):
        env = epo.make("SafetyPointPush1-v0", physics=physics)
        env.reset(seed=1)
        for _ in range(200):
            last = env.step(np.array([1.0, 0.3]))
        obs[physics] = last[0]
    assert obs["published"].shape == obs["fast"].shape
    with pytest.raises(epo.ConfigError, match="physics"):
        epo.make("SafetyPointPush1-v0", physics="quick")


def test_an_unknown_task_names_the_nearest_one():
    with pytest.raises(epo.ConfigError, match="did you mean `SafetyPointGoal1-v0`"):
        epo.make("SafetyPointgoal1-v1")


@pytest.mark.parametrize(
    "action, text",
    [
        (np.zeros(3), r"shape \(2,\), not \(3,\)"),
        (np.zeros((1, 2)), r"shape \(2,\), not \(1, 2\)"),
        (np.array([0.0, np.nan]), "entry 1 of the action is NaN"),
        (np.array([np.inf, 0.0]), "entry 0 of the action is inf"),
        (np.array([1 + 2j, 0]), "an action is an array of numbers"),
        (["1", "2"], "an action is an array of numbers"),
        (None, "an action is an array of numbers, not None"),
    ],
)
def test_a_bad_action_is_refused_and_the_episode_goes_on(action, text):
    env = epo.make("SafetyPointGoal1-v0")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=text):
        env.step(action)
    env.step(np.zeros(2))


@pytest.mark.parametrize("seed, text", [(-1, "from 0"), (1.5, "whole number"), ("7", "whole number"), (2**32, "below 2")])
def test_a_bad_seed_is_refused(seed, text):
    with pytest.raises(ValueError, match=text):
        epo.make("SafetyPointGoal1-v0").reset(seed=seed)


def test_a_step_needs_a_reset_and_an_open_environment():
    env = epo.make("SafetyPointGoal1-v0")
    with pytest.raises(epo.EpoError, match="call reset first"):
        env.step(np.zeros(2))
    env.close()
    env.close()
    with pytest.raises(epo.EpoError, match="closed"):
        env.reset()
    with pytest.raises(epo.EpoError, match="closed"):
        env.step(np.zeros(2))


def test_without_gymnasium_the_tasks_work(python):
    """This test fails if Gymnasium is imported outside its guard. It must stay an extra."""
    script = """
import sys
sys.modules["gymnasium"] = None
import epo, numpy as np
env = epo.make("SafetyPointGoal1-v0")
env.action_space.seed(0)
obs, info = env.reset(seed=0)
for _ in range(10):
    obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
assert obs.shape == env.observation_space.shape == (60,)
assert not hasattr(epo, "gym")
try:
    epo.train(lambda: None, steps=100)
except epo.EpoError as error:
    assert "pip install gymnasium" in str(error)
else:
    raise SystemExit("it must be refused")
"""
    python(script)


def test_the_import_is_fast(python):
    """`epo` itself adds little to the import of NumPy and Gymnasium. wheel.sh measures the import as a whole."""
    pytest.importorskip("gymnasium")
    script = "import time, numpy, gymnasium; t = time.process_time(); import epo; print(time.process_time() - t)"
    times = [float(python(script).stdout) for _ in range(3)]
    assert min(times) < 0.15, times


def test_a_forked_child_can_go_on(python):
    script = """
import os, numpy as np, epo, epo.gym
env = epo.make("SafetyPointGoal1-v0")
vec = epo.gym.VecEnv("SafetyPointGoal1-v0", 4, threads=2)
env.reset(seed=0), vec.reset(seed=0)
env.step(np.zeros(2)), vec.step(np.zeros((4, 2)))   # the threads run
pid = os.fork()
for _ in range(3):
    a, b = env.step(np.ones(2))[0].sum(), vec.step(np.ones((4, 2)))[0].sum()
os.write(1, f"{a} {b}\\n".encode())   # one call, so that the lines of parent and child do not mix
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    pytest.importorskip("gymnasium")
    lines = python(script, timeout=60).stdout.split("\n")
    assert lines[0] == lines[1] != "", lines


def test_the_library_is_that_of_the_package(python):
    """This test fails if the package works only where it was built: the library of the build is then taken."""
    script = "import epo; epo.make('SafetyPointGoal1-v0').reset(seed=0); print(open('/proc/self/maps').read())"
    loaded = {line.split()[-1] for line in python(script).stdout.splitlines() if "libmujoco" in line}
    assert loaded == {str(Path(epo.__file__).parent / "mujoco" / "libmujoco.so.3.17.0")}


def test_a_panic_is_an_exception_and_the_process_goes_on(python):
    """This test fails if the native module is built to abort on a panic."""
    script = """
import numpy as np, epo
from epo import _epo
env = epo.make("SafetyPointGoal1-v0")
env.reset(seed=0)
try:
    _epo.panic("broken by hand")
except BaseException as error:
    print(type(error).__name__, error)
print(env.step(np.zeros(2))[0].shape)
"""
    assert python(script).stdout == "PanicException broken by hand\n(60,)\n"


def test_mujoco_of_the_caller_lives_in_the_same_process(python):
    pytest.importorskip("mujoco")
    script = """
{first}
{second}
import numpy as np
env = epo.make("SafetyPointGoal1-v0")
env.reset(seed=7)
obs = env.step(np.array([1.0, 0.0]))[0]
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_step(model, data)
bodies = "<body><freejoint/><geom size='.1'/></body>" * 20
model = mujoco.MjModel.from_xml_string(f"<mujoco><size memory='24K'/><worldbody>{{bodies}}</worldbody></mujoco>")
try:
    mujoco.mj_step(model, mujoco.MjData(model))  # kills: one library for both, with our handler that ends the process
except mujoco.FatalError:
    print("fatal", end=" ")
print(repr(obs.sum()), repr(data.qpos[2]))
"""
    imports = ["import epo", "import mujoco"]
    a = python(script.format(first=imports[0], second=imports[1])).stdout
    b = python(script.format(first=imports[1], second=imports[0])).stdout
    assert a == b and a.startswith("fatal")
