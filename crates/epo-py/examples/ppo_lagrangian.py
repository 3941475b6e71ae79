"""PPO-Lagrangian in one file, in the style of CleanRL, on a native vector environment. It needs torch and Gymnasium.

    python ppo_lagrangian.py --task SafetyPointGoal1-v0 --steps 1000000
"""

import argparse

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn

import epo.gym


def main(task="SafetyPointGoal1-v0", steps=1_000_000, limit=25.0, envs=8, horizon=500, seed=0, passes=10):
    """Trains and returns one row per update: steps, mean return, mean cost and multiplier of the finished episodes."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # the networks are small
    env = gymnasium.make_vec(
        f"epo:{epo.gym.gymnasium_id(task)}",
        num_envs=envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode="same_step",
    )
    env = epo.gym.RecordEpisodeCostVector(RecordEpisodeStatistics(env))
    n_obs, n_act = env.single_observation_space.shape[0], env.single_action_space.shape[0]

    def mlp(n_out):
        return nn.Sequential(nn.Linear(n_obs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out))

    actor, critic, log_std = mlp(n_act), mlp(2), nn.Parameter(torch.zeros(n_act))  # the critic has reward and cost
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters(), log_std], lr=1e-3)
    multiplier, gamma, lam, rows = 0.0, 0.99, 0.95, []
    as_tensor = lambda x: torch.as_tensor(np.asarray(x), dtype=torch.float32)  # noqa: E731

    obs = as_tensor(env.reset(seed=seed)[0])
    for update in range(max(1, steps // (envs * horizon))):
        batch, returns, costs = [], [], []
        for _ in range(horizon):
            with torch.no_grad():
                dist = torch.distributions.Normal(actor(obs), log_std.exp())
                action = dist.sample()
                value = critic(obs)
            low, high = env.single_action_space.low, env.single_action_space.high
            after, reward, terminated, truncated, infos = env.step(np.clip(action.numpy(), low, high))
            done = terminated | truncated
            last = after.copy()
            if done.any():
                for i in np.flatnonzero(done):
                    last[i] = infos["final_obs"][i]
                returns += infos["episode"]["r"][done].tolist()
                costs += infos["episode"]["c"][done].tolist()
            with torch.no_grad():
                following = critic(as_tensor(last)) * as_tensor(~terminated)[:, None]
            both = torch.stack([as_tensor(reward), as_tensor(infos["cost"])], 1)
            batch.append((obs, action, dist.log_prob(action).sum(1), value, both, following, as_tensor(~done)))
            obs = as_tensor(after)

        advantage, advantages = torch.zeros(envs, 2), []
        for _, _, _, value, both, following, goes_on in reversed(batch):
            advantage = both + gamma * following - value + gamma * lam * goes_on[:, None] * advantage
            advantages.insert(0, advantage)
        states, actions, logs, values = (torch.cat([row[k] for row in batch]) for k in range(4))
        gains = torch.cat(advantages)
        targets = gains + values
        if costs:
            multiplier = max(0.0, multiplier + 0.002 * (np.mean(costs) - limit))
        mixed = (gains[:, 0] - multiplier * gains[:, 1]) / (1 + multiplier)
        mixed = (mixed - mixed.mean()) / (mixed.std() + 1e-8)
        for _ in range(passes):
            for index in torch.randperm(len(states)).split(512):
                dist = torch.distributions.Normal(actor(states[index]), log_std.exp())
                ratio = (dist.log_prob(actions[index]).sum(1) - logs[index]).exp()
                clipped = ratio.clamp(0.8, 1.2)
                loss = -torch.minimum(ratio * mixed[index], clipped * mixed[index]).mean()
                loss = loss + 0.5 * (critic(states[index]) - targets[index]).square().mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        if returns:
            rows.append(((update + 1) * envs * horizon, np.mean(returns), np.mean(costs), multiplier))
            print("steps {:>9,}  return {:8.2f}  cost {:7.2f}  multiplier {:.3f}".format(*rows[-1]))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="SafetyPointGoal1-v0")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--limit", type=float, default=25.0)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.task, arguments.steps, arguments.limit, arguments.envs, seed=arguments.seed)
