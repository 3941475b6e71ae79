"""Claim: an unmodified OmniSafe 0.5.0 trains its PPO-Lagrangian on our tasks."""

import csv

import pytest

omnisafe = pytest.importorskip("omnisafe", reason="omnisafe 0.5.0 is not installed (Python 3.10, numpy<2)")

import epo.omnisafe
from conftest import check_docstrings


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an agent makes folders
    check_docstrings("epo.omnisafe")


@pytest.mark.parametrize("envs", [1, 4])
def test_ppo_lag_trains(tmp_path, envs):
    config = {
        "train_cfgs": {"total_steps": 4000, "vector_env_nums": envs, "torch_threads": 1},
        "algo_cfgs": {"steps_per_epoch": 2000, "update_iters": 2},
        "logger_cfgs": {"use_wandb": False, "use_tensorboard": False, "log_dir": str(tmp_path)},
    }
    agent = omnisafe.Agent("PPOLag", "epo:SafetyPointCircle1-v0", custom_cfgs=config)
    agent.learn()
    (record,) = tmp_path.glob("*/*/progress.csv")
    rows = list(csv.DictReader(record.open()))
    assert len(rows) == 2
    assert float(rows[-1]["Metrics/EpLen"]) == 500
    assert float(rows[-1]["Metrics/EpCost"]) > 0
