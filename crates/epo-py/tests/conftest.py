"""Shared helpers of the tests."""

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import epo

# without a screen, mujoco decides how to draw when it is first imported
if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

REPOSITORY = Path(__file__).resolve().parents[3]
RECORDINGS = REPOSITORY / "crates" / "epo-tasks" / "tests" / "recordings"

#: Settings of a run that takes about a second.
SMALL = dict(steps=1600, envs=4, steps_per_epoch=400, passes=2, hidden=[16], minibatch=100, final_eval_episodes=2)


def _members(kind):
    """The public methods and properties that a class defines, with their docstrings."""
    for name, value in vars(kind).items():
        if isinstance(value, (property, staticmethod, classmethod)) or inspect.isfunction(value):
            if not name.startswith("_"):
                yield name, inspect.getdoc(getattr(kind, name)) or ""


def check_docstrings(module):
    """Runs the examples of a module. Fails if a public function or class has none, or if none uses a method."""
    module = importlib.import_module(module)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert result.attempted > 0 and result.failed == 0
    missing = []
    public = epo.__all__ if "._" in module.__name__ else getattr(module, "__all__", vars(module))
    for name in public:
        value = getattr(module, name, None)
        if getattr(value, "__module__", None) != module.__name__ or name.startswith("_"):
            continue  # it is defined elsewhere
        if not (inspect.isfunction(value) or inspect.isclass(value)):
            continue
        text = inspect.getdoc(value) or ""
        if ">>> " not in text:
            missing.append(name)
        if inspect.isclass(value):
            members = dict(_members(value))
            examples = "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)$", "\n".join([text, *members.values()]), re.MULTILINE))
            for member, own in members.items():
                # members of a base class, such as `reset`, are described there
                inherited = any(hasattr(base, member) for base in value.__mro__[1:] if base.__module__ != module.__name__)
                if not own or not (inherited or re.search(rf"\.{member}\b", examples)):
                    missing.append(f"{name}.{member}")
    assert not missing, f"without an example: {missing}"


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
