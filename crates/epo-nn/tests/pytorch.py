# Makes the numbers of pytorch.rs (PyTorch 2.15, f64). Run: python pytorch.py
import math, torch
torch.set_default_dtype(torch.float64)
F = torch.distributions

def values(n, a, b):  # the same list in pytorch.rs
    return torch.tensor([b * math.sin(a * (i + 1)) for i in range(n)]).float().double()

def net(out):
    m = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4), torch.nn.Tanh(),
                            torch.nn.Linear(4, out))
    flat, at = values(5 * 4 + 4 * 6 + out * 5, 1.7, 0.6), 0
    for l in (m[0], m[2], m[4]):  # a layer is [in + 1][out], its last row the bias
        w = flat[at:at + (l.in_features + 1) * l.out_features].view(l.in_features + 1, l.out_features)
        l.weight.data, l.bias.data = w[:-1].t().clone(), w[-1].clone()
        at += w.numel()
    return m

def flat(m, pick):
    return torch.cat([torch.cat([pick(l.weight).t(), pick(l.bias)[None]]).reshape(-1) for l in (m[0], m[2], m[4])])

def show(name, x):
    x = x.detach().reshape(-1).tolist()
    print(f"const {name}: [f64; {len(x)}] = [{', '.join(f'{v:.9e}' for v in x)}];")

obs, c = values(12, 0.9, 2.0).view(4, 3), values(4, 2.3, 1.0)
for name, out, act in (("GAUSS", 2, values(8, 1.1, 1.5).view(4, 2)), ("CAT", 3, torch.tensor([2, 0, 1, 2]))):
    m = net(out)
    params = list(m.parameters())
    y = m(obs)
    if name == "GAUSS":
        log_std = torch.tensor([-0.5, 0.25], requires_grad=True)
        params.append(log_std)
        dist = F.Independent(F.Normal(y, log_std.exp()), 1)
        other = F.Independent(F.Normal(y.detach() + 0.25, torch.tensor([0.5, -0.25]).exp()), 1)
        both = lambda pick: torch.cat([flat(m, pick), pick(log_std)])
    else:
        dist, other = F.Categorical(logits=y), F.Categorical(logits=2 * y.detach())
        both = lambda pick: flat(m, pick)
    logp = dist.log_prob(act)
    entropy = dist.entropy().mean()
    loss = (c * logp).sum() - 0.01 * entropy
    loss.backward()
    show(name + "_OUT", y)
    show(name + "_LOGP", logp)
    show(name + "_ENTROPY", entropy)
    show(name + "_KL", torch.stack([F.kl_divergence(dist, other).mean(), F.kl_divergence(other, dist).mean()]))
    show(name + "_GRAD", both(lambda p: p.grad))
    # three steps: the clip at norm 1, Adam with a falling rate
    adam = torch.optim.Adam(params, lr=0.0)
    norms = []
    for t in range(3):
        adam.param_groups[0]["lr"] = 0.02 * (1 - t / 3)
        adam.zero_grad()
        y = m(obs)
        dist = F.Independent(F.Normal(y, log_std.exp()), 1) if name == "GAUSS" else F.Categorical(logits=y)
        ((c * dist.log_prob(act)).sum() - 0.01 * dist.entropy().mean()).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(params, 1.0))
        adam.step()
    show(name + "_NORMS", torch.stack(norms))
    show(name + "_AFTER", both(lambda p: p.data))
