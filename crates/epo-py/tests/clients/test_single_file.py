"""Claim: a training in one file, in the style of CleanRL, learns on the native vector environment."""

import runpy

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from conftest import REPOSITORY


def test_the_example_learns():
    example = runpy.run_path(str(REPOSITORY / "crates/epo-py/examples/ppo_lagrangian.py"))
    rows = example["main"]("SafetyPointCircle1-v0", steps=60_000, limit=150.0)
    assert rows[-1][0] == 60_000
    assert rows[-1][1] > rows[0][1] + 5, "the return grows"
    assert max(row[2] for row in rows) > 0, "the cost reaches the statistics"
