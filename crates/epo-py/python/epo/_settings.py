"""Types of the settings that ``epo.train`` takes as keywords. ``tests/test_types.py`` writes this file."""

from __future__ import annotations

from typing import Sequence, TypedDict


class Settings(TypedDict, total=False):
    """Settings of the tables ``train`` and ``algo``."""

    alpha: float
    alpha_thresholds: Sequence[float]
    c_scale: str | float
    cg_iters: float
    clip: float
    cost_clip: str | float
    cost_window: float
    critic_l2: float
    critic_lr: float
    critic_minibatch: float
    critic_passes: float
    damping: float
    divide_loss: bool
    entropy: float
    eval_episodes: float
    eval_every: float
    final_eval_episodes: float
    gamma: float
    gamma_c: float
    hidden: Sequence[float]
    kappa: float
    kappa_growth: float
    kappa_max: float
    kl_direction: str | float
    kl_stop: bool
    lambda_: float
    lambda_c: float
    lambda_init: float
    lambda_lr: float
    lr: float
    lr_decay: bool
    margin: float
    max_grad_norm: float
    minibatch: float
    mu: float
    mu_decay: float
    mu_init: float
    mu_rate: float
    mu_recovers: bool
    normalize_loss: bool
    normalize_obs: bool
    normalize_values: bool
    passes: float
    penalty_max: float
    per_minibatch: bool
    pmn: str | float
    psi_max: float
    quad_stream: str | float
    save_every: float
    save_policies: bool
    search_decay: float
    search_trials: float
    share_max: float
    share_rate: float
    sharpness: float
    sigma: float
    smooth: str | float
    steps_per_epoch: float
    target_kl: float
    targets: str | float
    unit: str | float
    violation_scale: str | float
