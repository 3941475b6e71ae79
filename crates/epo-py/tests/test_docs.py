"""Claim: the Python code of the pages runs, in the order in which it stands, with a short training."""

import doctest
import importlib
import re

import pytest

import epo
from conftest import REPOSITORY, SMALL

gymnasium = pytest.importorskip("gymnasium")

PAGE = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
#: Blocks with clients that are not installed here; long.sh runs the clients, and ray_nodes.py the sweep on Ray.
SKIPPED = ("stable_baselines3", 'engine="ray"', "omnisafe", "render_mode", "onnxruntime", "import mujoco")


def test_the_page_runs(tmp_path, monkeypatch):
    """This test fails if the page has a name, an argument or a number of values that the package does not have."""
    monkeypatch.chdir(tmp_path)
    train = epo.train

    def short(task=None, **kwargs):
        small = {**SMALL, "runs": tmp_path, "workers": 0 if callable(task) else None}
        return train(task, **{**kwargs, **{key: value for key, value in small.items() if value is not None}})

    monkeypatch.setattr(epo, "train", short)
    assert len(BLOCKS) > 10
    names = {"many_observations": __import__("numpy").zeros((5, 60))}
    ran = 0
    for block in BLOCKS:
        if any(word in block for word in SKIPPED):
            continue
        if "epo.load(result)" in block:  # the result on this page is then that of a navigation task again
            names["result"] = short("SafetyPointGoal1-v0")
            names["obs"] = epo.make("SafetyPointGoal1-v0").reset(seed=0)[0]
        exec(compile(block, "docs/python.md", "exec"), names)
        ran += 1
    assert ran >= 7, ran


def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = epo.train
    monkeypatch.setattr(epo, "train", lambda task, **kwargs: train(task, **{**kwargs, **SMALL}))
    (block,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["policy"].task == "SafetyPointCircle1-v0"


def test_the_mujoco_example_runs(tmp_path):
    pytest.importorskip("mujoco")
    (block,) = [block for block in BLOCKS if "import mujoco" in block]
    names = {"epo": epo}
    exec(compile(block.split("result =")[0], "docs/python.md", "exec"), names)
    assert epo.check_env(names["Cart"], max_steps=200) == []
    run = epo.train(names["Cart"], max_steps=200, runs=tmp_path, workers=0, check=False, **SMALL)
    assert run.finished


@pytest.mark.parametrize("name", ["epo", "epo._env", "epo._policy", "epo._train", "epo.gym", "epo.safety_gymnasium"])
def test_the_examples_of_the_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0
