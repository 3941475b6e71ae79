"""Claim: all ids pass Gymnasium's checks, and the native vector environment gives the numbers of single environments."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

import epo
import epo.gym
import epo.safety_gymnasium as safety_gymnasium

TASKS = [task["id"] for task in epo.tasks()]
needs_modes = pytest.mark.skipif(epo.gym.AutoresetMode is None, reason="this Gymnasium has no autoreset modes")


def test_all_tasks_are_registered():
    assert len(TASKS) >= 38
    for task in TASKS:
        assert epo.gym.gymnasium_id(task) in gymnasium.registry


@pytest.mark.parametrize("task", TASKS)
def test_the_checker_of_gymnasium_passes(task):
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(f"epo:{epo.gym.gymnasium_id(task)}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(minimum|maximum) value is.*infinity.*")
        warnings.filterwarnings("ignore", message=".*different sources of observation.*")
        check_env(env.unwrapped, skip_render_check=True)


def test_the_cost_is_in_the_info_and_episodes_end():
    env = gymnasium.make("epo:SafetyPointCircle1Gymnasium-v0")
    env.reset(seed=0)
    for t in range(1, 501):
        obs, reward, terminated, truncated, info = env.step(np.array([1.0, 0.2], np.float32))
        assert info["cost"] == info["cost_sum"]
        assert truncated == (t == 500)
    again = pickle.loads(pickle.dumps(env))
    assert np.array_equal(again.reset()[0], env.reset()[0])


def single(task, seeds, actions):
    """Episodes of single environments, one after the other without autoreset."""
    rows = []
    for i, seed in enumerate(seeds):
        env = epo.make(task)
        env.reset(seed=seed)
        rows.append([env.step(a[i])[:5] for a in actions])
    return rows


@pytest.mark.parametrize("threads", [1, 2])
def test_a_vector_gives_the_numbers_of_single_environments(threads):
    """This test fails if rows are mixed up, seeds are shared, or results depend on threads."""
    random = np.random.default_rng(0)
    actions = random.uniform(-1, 1, (40, 3, 2))
    env = epo.gym.VecEnv("SafetyPointGoal2-v0", 3, threads=threads)
    obs, _ = env.reset(seed=10)
    rows = single("SafetyPointGoal2-v0", [10, 11, 12], actions)
    for t, action in enumerate(actions):
        obs, reward, terminated, truncated, infos = env.step(action)
        for i in range(3):
            want = rows[i][t]
            assert np.array_equal(obs[i], want[0])
            assert (reward[i], infos["cost"][i], terminated[i], truncated[i]) == want[1:]


@needs_modes
def test_next_step_resets_in_the_step_after_the_end():
    env = gymnasium.make_vec(
        "epo:SafetyPointCircle1Gymnasium-v0", num_envs=2, vectorization_mode="vector_entry_point", threads=2
    )
    assert env.metadata["autoreset_mode"] == epo.gym.AutoresetMode.NEXT_STEP
    first, _ = env.reset(seed=4)
    for t in range(500):
        obs, reward, terminated, truncated, infos = env.step(np.ones((2, 2)))
        assert truncated.all() == (t == 499)
    obs, reward, terminated, truncated, infos = env.step(np.ones((2, 2)))
    assert not truncated.any() and not reward.any() and not infos["cost"].any()
    one = epo.make("SafetyPointCircle1-v0")
    one.reset(seed=4)
    assert np.array_equal(obs[0], one.reset()[0]), "the next episode of the same seed"
    assert not np.array_equal(obs, first)


@needs_modes
def test_same_step_keeps_the_last_observation():
    env = gymnasium.make_vec(
        "epo:SafetyPointCircle1Gymnasium-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        autoreset_mode="same_step",
    )
    env.reset(seed=[4, 9])
    rows = single("SafetyPointCircle1-v0", [4, 9], [np.ones((2, 2))] * 500)
    for t in range(500):
        obs, reward, terminated, truncated, infos = env.step(np.ones((2, 2)))
    assert truncated.all() and infos["_final_obs"].all()
    for i in range(2):
        assert np.array_equal(infos["final_obs"][i], rows[i][-1][0])
        assert infos["final_info"]["cost"][i] == rows[i][-1][2]
        assert not np.array_equal(obs[i], rows[i][-1][0])


@needs_modes
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_the_statistics_have_the_cost(mode):
    from gymnasium.wrappers.vector import RecordEpisodeStatistics

    env = gymnasium.make_vec(
        "epo:SafetyPointCircle1Gymnasium-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        autoreset_mode=mode,
    )
    env = epo.gym.RecordEpisodeCostVector(RecordEpisodeStatistics(env))
    env.reset(seed=0)
    action = np.array([[1.0, 0.1], [0.5, -0.3]])
    found, sums, returns = [], np.zeros(2), np.zeros(2)
    for _ in range(1002):
        _, reward, terminated, truncated, infos = env.step(action)
        sums += infos["cost"]
        returns += reward
        if (terminated | truncated).any():
            assert infos["_episode"].all()
            found.append(infos["episode"]["c"].copy())
            assert np.array_equal(found[-1], sums)
            assert np.allclose(infos["episode"]["r"], returns, rtol=1e-3)
            sums, returns = np.zeros(2), np.zeros(2)
    assert len(found) == 2 and np.sum(found) > 0


def test_the_statistics_of_one_environment_have_the_cost():
    from gymnasium.wrappers import RecordEpisodeStatistics

    env = gymnasium.make("epo:SafetyPointCircle1Gymnasium-v0")
    env = epo.gym.RecordEpisodeCost(RecordEpisodeStatistics(env))
    for _ in range(2):
        env.reset(seed=0)
        total, done = 0.0, False
        while not done:
            *_, terminated, truncated, info = env.step(np.array([1.0, 0.1], np.float32))
            total += info["cost"]
            done = terminated or truncated
        assert info["episode"]["c"] == total > 0 and "r" in info["episode"]


def test_observations_are_copies_unless_asked_otherwise():
    for copies in (True, False):
        env = epo.gym.VecEnv("SafetyPointGoal1-v0", 2, copy=copies)
        first, _ = env.reset(seed=0)
        before = first.copy()
        second = env.step(np.ones((2, 2)))[0]
        assert np.array_equal(first, before) == copies
        assert (second is first) != copies


def test_gymnasium_can_vectorise_the_single_environment():
    if epo.gym.AutoresetMode is None:
        pytest.skip("make_vec is new in Gymnasium 1.0")
    env = gymnasium.make_vec("epo:SafetyPointGoal1Gymnasium-v0", num_envs=2, vectorization_mode="sync")
    env.reset(seed=0)
    infos = env.step(env.action_space.sample())[-1]
    assert "cost" in infos and infos["_cost"].all()


@pytest.mark.parametrize(
    "kwargs, text",
    [
        ({"num_envs": 0}, "from 1 to 10000"),
        ({"threads": -1}, "`threads` takes a whole number of at least 0, not -1"),
        ({"autoreset_mode": "disabled"}, "next_step"),
        ({"render_mode": "human"}, "cannot be rendered"),
    ],
)
def test_bad_arguments_of_a_vector(kwargs, text):
    with pytest.raises(ValueError, match=text):
        epo.gym.VecEnv("SafetyPointGoal1-v0", **{"num_envs": 2, **kwargs})


def test_bad_calls_of_a_vector():
    env = epo.gym.VecEnv("SafetyPointGoal1-v0", 2)
    with pytest.raises(epo.EpoError, match="call reset first"):
        env.step(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="2 environments, but 3 seeds"):
        env.reset(seed=[1, 2, 3])
    env.reset(seed=0)
    with pytest.raises(ValueError, match="shape"):
        env.step(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="environment 1: entry 0 of the action is NaN"):
        env.step(np.array([[0.0, 0.0], [np.nan, 0.0]]))
    with pytest.raises(epo.EpoError, match="cannot be pickled"):
        copy.deepcopy(env)
    env.close()
    with pytest.raises(epo.EpoError, match="closed"):
        env.reset()


def test_a_refused_action_steps_nothing():
    """This test fails if the first environments have already stepped, or been reset, when a later row is refused."""
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 2, 2))
    env, want = (epo.gym.VecEnv("SafetyPointGoal1-v0", 2, threads=1) for _ in range(2))
    env.reset(seed=0), want.reset(seed=0)
    for t, action in enumerate(actions):
        bad = action.copy()
        bad[1, 0] = np.inf
        with pytest.raises(ValueError, match="environment 1: entry 0 of the action is inf"):
            env.step(bad)
        if t == 2:
            with pytest.raises(ValueError, match="environment 1: seed 4294967296 is too large"):
                env.reset(seed=2**32 - 1)
        assert np.array_equal(env.step(action)[0], want.step(action)[0])
    assert np.array_equal(env.reset()[0], want.reset()[0]), "the refused seed is forgotten"
    with pytest.raises(ValueError, match="whole number"):
        env.reset(seed=True)


def test_two_threads_in_one_vector_are_refused():
    env = epo.gym.VecEnv("SafetyPointGoal1-v0", 64, threads=1)
    env.reset(seed=0)
    texts = []

    def work():
        for _ in range(40):
            try:
                env.step(np.zeros((64, 2)))
            except epo.EpoError as error:
                texts.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert texts and all("another thread is stepping" in text for text in texts)


@needs_modes
def test_the_statistics_have_the_cost_of_the_last_step_of_gymnasiums_own_vector():
    """This test fails if the cost in ``final_info`` is left out."""

    class Costly(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

        def __init__(self, length):
            self.length = length

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.zeros(1, np.float32), 0.0, False, self.t == self.length, {"cost": 1.0}

    modes = gymnasium.vector.AutoresetMode
    env = gymnasium.vector.SyncVectorEnv([lambda: Costly(3), lambda: Costly(4)], autoreset_mode=modes.SAME_STEP)
    env = epo.gym.RecordEpisodeCostVector(env)
    env.reset(seed=0)
    found = []
    for _ in range(12):
        infos = env.step(np.zeros((2, 1), np.float32))[-1]
        if "episode" in infos:
            found += infos["episode"]["c"][infos["episode"]["_c"]].tolist()
    assert sorted(found) == [3.0] * 4 + [4.0] * 3


def test_an_id_of_another_package_is_replaced_with_a_warning(monkeypatch):
    id = "SafetyPointGoal1Gymnasium-v0"
    ours = gymnasium.registry[id]
    monkeypatch.setitem(gymnasium.registry, id, gymnasium.envs.registration.EnvSpec(id, entry_point="other:Env"))
    with pytest.warns(UserWarning, match=f"epo replaces 1 ids that another package has registered, such as {id}"):
        epo.gym.register()
    assert gymnasium.registry[id].entry_point == ours.entry_point
    # what depends on the version of Gymnasium is whether `register` takes it, not the autoreset modes of 1.1
    assert getattr(gymnasium.registry[id], "vector_entry_point", "epo.gym:VecEnv") == "epo.gym:VecEnv"


def test_the_vector_entry_point_does_not_need_the_autoreset_modes(monkeypatch):
    """Gymnasium 1.0 takes a vector entry point and has no autoreset modes."""
    if not hasattr(gymnasium, "VectorizeMode"):
        pytest.skip("make_vec is new in Gymnasium 1.0")
    id = "SafetyPointGoal1Gymnasium-v0"
    monkeypatch.setattr(epo.gym, "AutoresetMode", None)
    monkeypatch.delitem(gymnasium.registry, id)
    epo.gym.register()
    assert gymnasium.registry[id].vector_entry_point == "epo.gym:VecEnv"
    env = gymnasium.make_vec(id, num_envs=2, vectorization_mode="vector_entry_point")
    assert env.reset(seed=0)[0].shape == (2, 60)


def test_a_script_of_safety_gymnasium_runs_unchanged(monkeypatch):
    """The script is the example of the package's own documentation."""
    import sys

    monkeypatch.setitem(sys.modules, "safety_gymnasium", safety_gymnasium)
    script = """
import safety_gymnasium
env = safety_gymnasium.make("SafetyPointGoal1-v0")
obs, info = env.reset(seed=0)
total = 0.0
for _ in range(1500):
    act = env.action_space.sample()
    obs, reward, cost, terminated, truncated, info = env.step(act)
    total += cost
    if terminated or truncated:
        obs, info = env.reset()
env.close()
"""
    names = {}
    exec(script, names)
    env = safety_gymnasium.vector.make("SafetyPointCircle1-v0", num_envs=2)
    env.reset(seed=0)
    for _ in range(500):
        obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
    assert truncated.all() and info["final_observation"][0].shape == obs[0].shape and cost.shape == (2,)
    five = safety_gymnasium.wrappers.SafetyGymnasium2Gymnasium(safety_gymnasium.make("SafetyPointGoal1-v0"))
    five.reset(seed=0)
    assert len(five.step(five.action_space.sample())) == 5
    six = safety_gymnasium.wrappers.Gymnasium2SafetyGymnasium(five)
    six.reset(seed=0)
    assert len(six.step(six.action_space.sample())) == 6


@pytest.fixture
def installed(monkeypatch):
    """``import safety_gymnasium`` means our package, for one test."""
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] == "safety_gymnasium"]:
        monkeypatch.delitem(sys.modules, name)
    safety_gymnasium.install()
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "safety_gymnasium"]:
        del sys.modules[name]


def test_a_script_in_the_style_of_omnisafe_runs(installed):
    script = """
import numpy as np
import safety_gymnasium
envs = safety_gymnasium.vector.make(env_id="SafetyPointGoal1-v0", num_envs=2)
assert envs.metadata["render_fps"] == 30 and envs.spec.max_episode_steps == 1000
assert envs.single_action_space.dtype == np.float64 == envs.action_space.dtype
assert envs.is_vector_env and envs.reset(seed=0)[0].shape == (2, 60)
assert len(envs.step(envs.action_space.sample())) == 6
env = safety_gymnasium.make(id="SafetyPointGoal1-v0", autoreset=True, max_episode_steps=5, disable_env_checker=True)
assert env.env.spec.max_episode_steps == env.spec.max_episode_steps == 5 and env.spec.id == "SafetyPointGoal1-v0"
assert env.metadata["render_fps"] == 30 and safety_gymnasium.__version__
first, _ = env.reset(seed=3)
for t in range(1, 11):
    obs, reward, cost, terminated, truncated, info = env.step(np.ones(2))
    assert truncated == (t % 5 == 0) == ("final_observation" in info)
assert not np.array_equal(obs, info["final_observation"]) and "cost_sum" in info["final_info"]
"""
    exec(script, {})
    with pytest.raises(ValueError, match="can only shorten it"):
        safety_gymnasium.make("SafetyPointGoal1-v0", max_episode_steps=2000)


def test_a_script_in_the_style_of_safepo_runs(installed):
    script = """
import numpy as np
import safety_gymnasium
from safety_gymnasium.vector.async_vector_env import SafetyAsyncVectorEnv
from safety_gymnasium.wrappers import SafeAutoResetWrapper, SafeRescaleAction, SafeTimeLimit, SafeUnsqueeze

def make():
    return SafeTimeLimit(SafeRescaleAction(safety_gymnasium.make("SafetySwimmerVelocity-v1"), -2.0, 2.0), 4)

envs = SafetyAsyncVectorEnv([make] * 3)
assert envs.num_envs == 3 and envs.single_action_space.high[0] == 2.0
obs, info = envs.reset(seed=7)
one = make()
assert np.array_equal(obs[2], one.reset(seed=9)[0])
for t in range(1, 5):
    obs, reward, cost, terminated, truncated, info = envs.step(np.full((3, 2), 0.5))
    want = one.step(np.full(2, 0.5))
    assert reward[2] == want[1] and truncated.all() == (t == 4)
assert np.array_equal(info["final_observation"][2], want[0]) and info["_final_observation"].all()
plain = safety_gymnasium.make("SafetySwimmerVelocity-v1")
plain.reset(seed=9)
plain.step(np.full(2, 0.25))
one.reset(seed=9)
one.step(np.full(2, 0.5))
assert np.array_equal(plain.state()[0], one.state()[0])
env = SafeUnsqueeze(SafeRescaleAction(SafeAutoResetWrapper(safety_gymnasium.make("SafetyPointGoal1-v0")), -1.0, 1.0))
obs, info = env.reset(seed=0)
obs, reward, cost, terminated, truncated, info = env.step(np.zeros((1, 2)))
assert obs.shape == (1, 60) and reward.shape == cost.shape == terminated.shape == (1,)
envs.close()
"""
    exec(script, {})


def test_environments_can_be_registered(monkeypatch):
    monkeypatch.setattr(safety_gymnasium, "registry", dict(safety_gymnasium.registry))
    safety_gymnasium.register("Mine-v0", lambda: epo.make("SafetyPointGoal1-v0"), max_episode_steps=3)
    env = safety_gymnasium.make("Mine-v0")
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[4] for _ in range(3)] == [False, False, True]
    with pytest.raises(epo.ConfigError, match="belongs to a published task"):
        safety_gymnasium.register("SafetyPointGoal1-v0", "x:Y")


def test_single_environments_close_themselves():
    with epo.make("SafetyPointGoal1-v0") as env:
        assert env.unwrapped is env
    with pytest.raises(epo.EpoError, match="closed"):
        env.reset()
