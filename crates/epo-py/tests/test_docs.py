"""Claim: the Python code of the pages runs, in the order in which it stands, with a short training."""

import doctest
import re

import numpy as np
import pytest

import epo
from conftest import REPOSITORY, SMALL, check_docstrings

gymnasium = pytest.importorskip("gymnasium")

PAGE = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
#: Blocks with clients that are not installed here; long.sh runs the clients, and ray_nodes.py the sweep on Ray.
SKIPPED = ("stable_baselines3", 'engine="ray"', "omnisafe", "import mujoco")


def test_the_page_runs(tmp_path, monkeypatch):
    """This test fails if the page has a name, an argument or a number of values that the package does not have."""
    monkeypatch.chdir(tmp_path)
    train = epo.train

    def short(task=None, **kwargs):
        small = {**SMALL, "runs": tmp_path, "workers": 0 if callable(task) else None}
        return train(task, **{**kwargs, **{key: value for key, value in small.items() if value is not None}})

    monkeypatch.setattr(epo, "train", short)
    assert len(BLOCKS) > 10
    names = {"many_observations": np.zeros((5, 60))}
    ran = 0
    for block in BLOCKS:
        if any(word in block for word in SKIPPED):
            continue
        if "epo.load(result)" in block:  # the result on this page is then that of a navigation task again
            names["result"] = short("SafetyPointGoal1-v0")
            names["obs"] = epo.make("SafetyPointGoal1-v0").reset(seed=0)[0]
        exec(compile(block, "docs/python.md", "exec"), names)
        ran += 1
    assert ran >= 10, ran


def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = epo.train
    monkeypatch.setattr(epo, "train", lambda task, **kwargs: train(task, **{**kwargs, **SMALL}))
    (block,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["policy"].task == "SafetyPointCircle1-v0"


def test_the_control_loop_drives_a_robot(tmp_path, monkeypatch):
    """This test fails if the graph of the page gives other actions than the policy, or if a bad reading does not stop it."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    run = epo.train("SafetyPointGoal1-v0", runs=tmp_path, **SMALL)
    run.export_onnx("policy.onnx")
    text = (REPOSITORY / "docs" / "robot.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(compile(block, "docs/robot.md", "exec"), names)
    policy, env = epo.load(run), epo.make("SafetyPointGoal1-v0")
    seen, sent, stopped = [env.reset(seed=0)[0]], [], []

    def send(action):
        sent.append(action)
        seen.append(env.step(action)[0])

    names["drive"](lambda: seen[-1], send, lambda: stopped.append(1), 20, period=0.001)
    want = policy.predict(np.float32(seen[:-1]))
    assert np.abs(np.array(sent) - want).max() <= 1e-5 and stopped == [1]
    with pytest.raises(ValueError, match="60 finite numbers"):
        names["drive"](lambda: np.full(60, np.nan), send, lambda: stopped.append(1), 20)
    assert stopped == [1, 1]


def test_the_mujoco_example_runs(tmp_path):
    pytest.importorskip("mujoco")
    (block,) = [block for block in BLOCKS if "import mujoco" in block]
    names = {"epo": epo}
    exec(compile(block.split("result =")[0], "docs/python.md", "exec"), names)
    assert epo.check_env(names["Cart"], max_steps=200) == []
    run = epo.train(names["Cart"], max_steps=200, runs=tmp_path, workers=0, check=False, **SMALL)
    assert run.finished


def test_the_package_runs_its_first_example():
    assert doctest.testmod(epo).failed == 0 and ">>> " in epo.__doc__


@pytest.mark.parametrize(
    "name",
    [
        "epo._env",
        "epo._policy",
        "epo._train",
        "epo.gym",
        "epo.safety_gymnasium",
        "epo.safety_gymnasium.wrappers",
        "epo.safety_gymnasium.vector",
        "epo.safety_gymnasium.vector.sync_vector_env",
        "epo.safety_gymnasium.vector.async_vector_env",
    ],
)
def test_every_function_and_class_has_an_example_that_runs(name):
    """``epo.sb3`` and ``epo.omnisafe`` are tested with their clients."""
    check_docstrings(name)


def test_everything_public_is_in_a_module_that_is_tested():
    """This test fails if a function or class is exported from a module whose examples are not run."""
    tested = {"epo._env", "epo._policy", "epo._train", "epo._workers", "epo._epo"}
    homes = {name: getattr(epo, name).__module__ for name in epo.__all__ if hasattr(getattr(epo, name), "__module__")}
    assert {name for name, home in homes.items() if home not in tested and home != "epo"} == set()
    assert all(getattr(epo, name).__doc__ for name in homes)
