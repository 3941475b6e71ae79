"""Claim: a policy in Python, in Rust and in ONNX is the same policy."""

import numpy as np
import pytest

import epo
from epo import _epo
from conftest import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return epo.train("SafetyPointGoal1-v0", runs=tmp_path_factory.mktemp("runs"), **SMALL)


@pytest.fixture(scope="module")
def observations(run):
    """10,000 observations: usual ones, and ones that saturate the normaliser and the bounds."""
    random = np.random.default_rng(0)
    obs = random.normal(size=(10_000, 60)).astype(np.float32)
    obs[5000:8000] *= 100.0
    obs[8000:] *= 1e4
    return obs


def test_one_and_many_observations(run, observations):
    policy = epo.load(run)
    many = policy.predict(observations[:50])
    assert many.shape == (50, 2)
    assert np.array_equal(policy.predict(observations[7]), many[7])
    assert np.abs(policy.predict(observations)).max() <= 1.0, "actions are within the bounds"


def test_sampled_actions_follow_the_seed_and_spread(run, observations):
    policy = epo.load(run.dir)
    policy.seed(1)
    first = policy.predict(observations[:100], deterministic=False)
    policy.seed(1)
    assert np.array_equal(first, policy.predict(observations[:100], deterministic=False))
    assert not np.array_equal(first, policy.predict(observations[:100], deterministic=False))
    assert (first - policy.predict(observations[:100])).std() > 0.1


def test_the_policy_plays_as_the_evaluation_does(run):
    """This test fails if the normaliser or the map of actions differs from that of the evaluation."""
    report = run.evaluate(episodes=1, seed=4)
    policy, env = epo.load(run), epo.make("SafetyPointGoal1-v0")
    obs, _ = env.reset(seed=_epo.evaluation_seed(4, 0, 0))
    total = costs = 0.0
    for _ in range(1000):
        obs, reward, cost, terminated, truncated, info = env.step(policy.predict(obs))
        total, costs = total + reward, costs + cost
    assert truncated
    assert (total, costs) == (report["return"]["mean"], report["cost"]["mean"])


def test_values_have_the_critics_of_the_algorithm(run, observations, tmp_path):
    values = epo.load(run).values(observations[:20])
    assert {name: v.shape for name, v in values.items()}["reward"] == (20,)
    assert "cost" in values and all(np.isfinite(v).all() for v in values.values())
    one = epo.load(run).values(observations[3])
    assert one == {name: v[3] for name, v in values.items()}
    ppo = epo.train("SafetyPointGoal1-v0", algo="ppo", runs=tmp_path, **SMALL)
    assert "cost_far" not in epo.load(ppo).values(observations[0])
    assert epo.load(run).algorithm_state["mu"] > 0


@pytest.mark.parametrize("obs, text", [(np.zeros(59), "shape"), (np.zeros((2, 3, 60)), "shape"), (np.full(60, np.nan), "NaN")])
def test_bad_observations_are_refused(run, obs, text):
    with pytest.raises(ValueError, match=text):
        epo.load(run).predict(obs)


def test_onnx_agrees_within_1e_5(run, observations, tmp_path, cli):
    """This test fails if a clip is missing, a weight is transposed, the normaliser has single precision, or an action is not mapped."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path = tmp_path / "policy.onnx"
    cli("export", run.dir, "--onnx", path)
    again = tmp_path / "again.onnx"
    run.export_onnx(again)
    assert path.read_bytes() == again.read_bytes()
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (action,) = session.run(["action"], {"obs": observations})
    ours = epo.load(run).predict(observations)
    assert np.abs(action - ours).max() <= 1e-5
    assert (np.abs(ours) == 1.0).any(), "some actions are at the bounds"
    meta = session.get_modelmeta().custom_metadata_map
    assert meta["task"] == "SafetyPointGoal1-v0" and meta["hash"] == run.hash and float(meta["limit"]) == 25.0


def test_onnx_samples_if_asked(run, observations, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "sampled.onnx"
    run.export_onnx(path, deterministic=False)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    same = np.repeat(observations[:1], 4000, axis=0)
    action, mean, std = session.run(["action", "mean", "std"], {"obs": same})
    free = np.abs(mean[0]) < 0.2  # far from the bounds, clipping hardly matters for the mean
    assert np.abs(action.mean(axis=0) - mean[0])[free].max(initial=0.0) < 0.1
    assert action.std(axis=0).min() > 0.3 and std.shape == (2,)


def test_onnx_of_discrete_actions(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    gymnasium = pytest.importorskip("gymnasium")
    run = epo.train(
        lambda: gymnasium.make("CartPole-v1"),
        cost_fn=lambda obs, action, next_obs, info: float(abs(next_obs[0]) > 0.5),
        runs=tmp_path,
        workers=0,
        check=False,
        **SMALL,
    )
    obs = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    for deterministic in (True, False):
        path = tmp_path / f"{deterministic}.onnx"
        run.export_onnx(path, deterministic=deterministic)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        action, logits = session.run(["action", "logits"], {"obs": obs})
        assert action.shape == (1000,) and action.dtype == np.int64 and set(action) == {0, 1}
        if deterministic:
            assert np.array_equal(action, epo.load(run).predict(obs))
            assert np.array_equal(action, logits.argmax(axis=1))


def test_plot(run):
    pytest.importorskip("matplotlib")
    figure = run.plot()
    assert len(figure.axes) == 2
    assert figure._repr_png_().startswith(b"\x89PNG"), "a notebook shows it"


def test_the_exported_model_is_the_task(tmp_path):
    """This test fails if the model lacks its layout, has the goal at its former place, or if a mass is not scaled."""
    mujoco = pytest.importorskip("mujoco")
    if mujoco.__version__ != "3.17.0":
        pytest.skip(f"mujoco {mujoco.__version__} rounds differently")
    for task in ("SafetyPointGoal1-v0", "SafetyCarPush2-v0", "SafetyHalfCheetahVelocity-v1", "SafetyAntVelocity-v1"):
        env = epo.make(task)
        env.reset(seed=3)
        model = mujoco.MjModel.from_xml_string(env.model())
        data = mujoco.MjData(model)
        qpos, qvel = env.state()
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(model, data)
        positions, _ = env._native.body_poses()
        assert np.abs(data.xpos - np.array(positions)).max() < 1e-12, task
        if "Velocity" in task:  # a velocity task is five substeps of the bare model
            env.step(np.full(env.action_space.shape, 0.5))
            data.ctrl[:] = 0.5
            for _ in range(5):
                mujoco.mj_step(model, data)
            assert np.abs(data.qpos - env.state()[0]).max() < 1e-9, task
