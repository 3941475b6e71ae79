"""Shared helpers of the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# without a screen, mujoco decides how to draw when it is first imported
if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

REPOSITORY = Path(__file__).resolve().parents[3]
RECORDINGS = REPOSITORY / "crates" / "epo-tasks" / "tests" / "recordings"

#: Settings of a run that takes about a second.
SMALL = dict(steps=1600, envs=4, steps_per_epoch=400, passes=2, hidden=[16], minibatch=100, final_eval_episodes=2)


@pytest.fixture
def small():
    return dict(SMALL)


@pytest.fixture
def cli():
    """Runs the command line of the package."""

    def run(*args, check=True, **kwargs):
        command = [sys.executable, "-m", "epo", *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, **kwargs)
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def python():
    """Runs a script in a fresh interpreter and returns its output."""

    def run(script, check=True, env=None, **kwargs):
        env = {**os.environ, **(env or {})}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, **kwargs)
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run
