#!/usr/bin/env python3
"""Every rule beside the code that others published for it, in float64, through `frostline mix`.

    pip install torch einops safetensors
    git clone https://github.com/fla-org/flash-linear-attention      # measured at bc3b101
    git clone https://github.com/state-spaces/mamba                  # measured at e9594ce
    bench/published/compare_rules.py flash-linear-attention mamba > docs/rules_checked.md

Only the naive functions of those projects are loaded, with their float32 casts turned into float64; they need no GPU. Where a
project has none (longhorn, mlstm, dpfp), the paper's formula stands here. Differences are ||ours - theirs|| / ||theirs||: of
the output by the step and by the chunk form, of the final state, and the worst of all gradients (torch's autograd through
the reference)."""
import math
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

torch.set_default_dtype(torch.float64)
FLA, MAMBA = (Path(p) for p in sys.argv[1:3])
PROGRAM = sys.argv[3] if len(sys.argv) > 3 else "build/release/frostline"
T, H, D, E, RANK = 130, 3, 32, 40, 8
FOLDER = tempfile.TemporaryDirectory()


def load(root, path, only=None):
    """A file's functions in float64; `only`: cut out by the text of its first and next line."""
    text = (root / path).read_text()
    if only:
        text = text[text.index(only[0]) : text.index(only[1])]
    text = text.replace("torch.float32", "torch.float64").replace(".float()", ".double()")
    text = text.replace(".to(torch.float)", ".to(torch.float64)").replace("dtype=torch.float,", "dtype=torch.float64,")
    text = text.replace("dtype=torch.float)", "dtype=torch.float64)")
    text = re.sub(r"^from (fla|mamba_ssm).*$", "", text, flags=re.M)
    module = types.ModuleType(path)
    exec(compile("import torch\nimport torch.nn.functional as F\nfrom einops import rearrange, repeat\n" + text, path, "exec"), module.__dict__)
    return module


def mix(variant, tensors, form):
    source, target = f"{FOLDER.name}/in.safetensors", f"{FOLDER.name}/out.safetensors"
    save_file({name: x.contiguous() for name, x in tensors.items()}, source)
    subprocess.run([PROGRAM, "mix", variant, source, "--out", target, "--form", form], check=True, stdout=subprocess.DEVNULL)
    return {name: x.double() for name, x in load_file(target).items()}


def distance(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


def unit(x):
    return F.normalize(x, dim=-1, eps=1e-12)


def random(*shape, scale=1.0):
    return torch.randn(*shape) * scale


ROWS = []


def check(rule, reference, variant, tensors, formula):
    """formula(tensors) -> output [T][H][D] and the final state as `mix` lays it out, or None."""
    tensors = {name: x.float().double() for name, x in tensors.items()}
    leaves = {name: x.clone().requires_grad_(True) for name, x in tensors.items()}
    output, state = formula(leaves)
    gradient = random(T, H, D)
    output.backward(gradient)
    step, chunk = mix(variant, tensors, "step"), mix(variant, {**tensors, "grad_out": gradient}, "chunk")
    worst = max(distance(chunk["grad." + name], x.grad) for name, x in leaves.items() if x.grad is not None)
    of_state = "" if state is None else f"{distance(chunk['state'], state.detach()):.0e}"
    row = (rule, f"`{variant}`", reference, f"{distance(step['out'], output.detach()):.0e}",
           f"{distance(chunk['out'], output.detach()):.0e}", of_state, f"{worst:.0e}")
    ROWS.append(row)
    print(" ".join(row), file=sys.stderr)


def low_rank(name, columns, rank=RANK, shift=0.0):
    return {f"p.{name}.w1": random(E, rank, scale=E**-0.5), f"p.{name}.w2": random(rank, columns, scale=rank**-0.5),
            f"p.{name}.bias": random(columns, scale=0.3) + shift}


def full(name, columns, shift=0.0):
    return {f"p.{name}.weight": random(E, columns, scale=E**-0.5), f"p.{name}.bias": random(columns) + shift}


def wide(t, name, bounded=False):
    low = t["h"] @ t[f"p.{name}.w1"]
    return ((torch.tanh(low) if bounded else low) @ t[f"p.{name}.w2"] + t[f"p.{name}.bias"]).view(T, H, -1)


def narrow(t, name):
    return t["h"] @ t[f"p.{name}.weight"] + t[f"p.{name}.bias"]


def batched(*xs):  # [T][H][D] -> [1][T][H][D]
    return [x.unsqueeze(0) for x in xs]


def by_head(*xs):  # [T][H][D] -> [1][H][T][D]
    return [x.unsqueeze(0).transpose(1, 2) for x in xs]


def main():
    torch.manual_seed(0)
    qkv = {"q": random(T, H, D), "k": random(T, H, D), "v": random(T, H, D)}
    inputs = {**qkv, "h": random(T, E)}
    small = {**inputs, "q": 0.3 * inputs["q"], "k": 0.3 * inputs["k"]}
    channel, scalar, beta = low_rank("gate", H * D, rank=16), full("gate", H), full("beta", H)
    root = D**0.5

    fla = lambda path: load(FLA, f"fla/ops/{path}")
    linear, gla, simple = fla("linear_attn/naive.py"), fla("gla/naive.py"), fla("simple_gla/naive.py")
    delta, gated, kda = fla("delta_rule/naive.py"), fla("gated_delta_rule/naive.py"), fla("kda/naive.py")
    comba, gdn2, product = fla("comba/naive.py"), fla("gdn2/naive.py"), fla("gated_delta_product/naive.py")
    dplr, rwkv6, retention = fla("generalized_delta_rule/dplr/naive.py"), fla("rwkv6/recurrent_naive.py"), fla("retention/naive.py")
    based, rebased = fla("based/naive.py"), fla("rebased/naive.py")
    scan = load(MAMBA, "mamba_ssm/ops/selective_scan_interface.py", ("def selective_scan_ref", "class MambaInnerFn")).selective_scan_ref
    ssd = load(MAMBA, "mamba_ssm/modules/ssd_minimal.py")

    turn = lambda s: s[0].transpose(-1, -2)
    log_gate = lambda t: F.logsigmoid(narrow(t, "gate"))

    def of_linear(t, phi, normalise):
        o, s = linear.naive_recurrent_linear_attn(*batched(phi(t["q"]), phi(t["k"]), t["v"]), scale=1.0, output_final_state=True,
                                                  normalize=normalise)
        return o[0], None if normalise else turn(s)

    check("linear", "fla linear_attn/naive.py", "{rule: linear, feature_map: identity, normaliser: false}", qkv, lambda t: of_linear(t, lambda x: x, False))
    check("linear", "fla linear_attn/naive.py (adds 1e-10)", "{rule: linear, feature_map: elu1}", qkv, lambda t: of_linear(t, lambda x: F.elu(x) + 1, True))

    def of_hedgehog(t):
        soft = lambda z: torch.cat([torch.softmax(z, -1), torch.softmax(-z, -1)], -1)
        q, k = (soft(torch.einsum("thd,hde->the", t[x], t[f"p.hedgehog.{n}"])) for x, n in (("q", "query"), ("k", "key")))
        o, _ = linear.naive_recurrent_linear_attn(*batched(q, k, t["v"]), scale=1.0, normalize=True)
        return o[0], None

    check("hedgehog", "fla modules/feature_map.py, linear_attn/naive.py", "{rule: hedgehog}",
          {**qkv, "p.hedgehog.query": torch.eye(D) + random(H, D, D, scale=0.1), "p.hedgehog.key": torch.eye(D) + random(H, D, D, scale=0.1)}, of_hedgehog)
    check("taylor", "fla based/naive.py (adds 1e-6)", "{rule: taylor}", qkv,
          lambda t: (based.naive_parallel_based(*by_head(t["q"], t["k"], t["v"]))[0].transpose(0, 1), None))

    def of_simple(t, scale, q, k, v, g):
        o, s = simple.naive_recurrent_simple_gla(*batched(q, k, v, g), scale=scale)
        return o[0], turn(s)

    check("decay", "fla simple_gla/naive.py", "{rule: decay}", {**inputs, **scalar}, lambda t: of_simple(t, 1.0, t["q"], t["k"], t["v"], log_gate(t)))
    check("gated", "fla simple_gla/naive.py, v times 1 - g", "{rule: gated}", {**inputs, **scalar},
          lambda t: of_simple(t, 1.0, t["q"], t["k"], t["v"] * (1 - torch.exp(log_gate(t)))[..., None], log_gate(t)))
    check("retnet", "fla retention/naive.py", "{rule: retnet, unit: false}", qkv,
          lambda t: (retention.naive_retention(*by_head(t["q"], t["k"], t["v"]))[0].transpose(0, 1), None))
    slopes = -(8 / H) * torch.arange(H).double().expand(T, H)
    check("lightning", "fla lightning_attn/chunk.py's slopes, simple_gla/naive.py", "{rule: lightning, unit: false}", qkv,
          lambda t: of_simple(t, D**-0.5, t["q"], t["k"], t["v"], slopes))

    def of_ssd(t):
        step = F.softplus(narrow(t, "gate"))
        y, s = ssd.ssd_minimal_discrete(*batched(t["v"] * step[..., None], -torch.exp(t["p.ssd.a_log"]) * step, t["k"], t["q"]), block_len=10)
        return y[0], s[0]

    check("ssd", "mamba modules/ssd_minimal.py", "{rule: ssd, unit: false}", {**small, **full("gate", H, -3), "p.ssd.a_log": random(H)}, of_ssd)

    def of_gla(t, q, k, v, g):
        o, s = gla.naive_recurrent_gla(*batched(q * root, k, v, g), output_final_state=True)
        return o[0], turn(s)

    check("gla", "fla gla/naive.py", "{rule: gla}", {**inputs, **channel},
          lambda t: of_gla(t, unit(t["q"]), unit(t["k"]), t["v"], F.logsigmoid(wide(t, "gate"))))

    def of_hgrn2(t):
        bound = torch.tensor(0.2)
        g = torch.logaddexp(bound.log(), torch.log1p(-bound) + F.logsigmoid(wide(t, "gate")))
        return of_gla(t, t["q"], 1 - g.exp(), t["v"], g)

    check("hgrn2", "fla layers/hgrn2.py, gla/naive.py", "{rule: hgrn2, unit: false, lower_bound: 0.2}", {**inputs, **channel}, of_hgrn2)

    def of_rodimus(t):
        g, tau = F.softplus(wide(t, "gate")), torch.sigmoid(wide(t, "rodimus.temperature"))
        return of_gla(t, t["q"], unit(t["k"]) * g**tau, t["v"] * torch.sigmoid(wide(t, "rodimus.input")), -g * tau)

    check("rodimus", "fla layers/rodimus.py, gla/naive.py", f"{{rule: rodimus, factors: {{rank: {RANK}}}}}",
          {**inputs, **channel, **low_rank("rodimus.temperature", H * D), **low_rank("rodimus.input", H * D)}, of_rodimus)

    def of_rwkv6(t):
        w = -torch.exp(wide(t, "gate", bounded=True))
        state, out = torch.zeros(H, D, D), []
        for i in range(T):  # fla's loop, kept differentiable; its own output is compared below
            kv = t["k"][i][:, :, None] * t["v"][i][:, None, :]
            out.append(((state + t["p.rwkv6.bonus"][:, :, None] * kv) * t["q"][i][:, :, None]).sum(1))
            state = state * torch.exp(w[i])[:, :, None] + kv
        with torch.no_grad():
            theirs, _ = rwkv6.naive_recurrent_rwkv6(*by_head(t["q"], t["k"], t["v"], w), t["p.rwkv6.bonus"], scale=1.0)
            assert distance(torch.stack(out), theirs[0].transpose(0, 1)) < 1e-12
        return torch.stack(out), state.transpose(-1, -2)

    check("rwkv6", "fla rwkv6/recurrent_naive.py", "{rule: rwkv6, unit: false}",
          {**inputs, **low_rank("gate", H * D, rank=16, shift=-2), "p.rwkv6.bonus": random(H, D)}, of_rwkv6)

    def of_rebased(t):
        w = lambda x: F.layer_norm(x, (D,)) * t["p.rebased.scale"] + t["p.rebased.shift"]
        return rebased.naive_parallel_rebased(*by_head(w(t["q"]), w(t["k"]), t["v"]))[0].transpose(0, 1), None

    check("rebased", "fla rebased/naive.py (adds 1e-6)", "{rule: rebased}",
          {**qkv, "p.rebased.scale": 1 + random(H, D, scale=0.1), "p.rebased.shift": random(H, D, scale=0.1) + 0.3}, of_rebased)

    def of_dpfp(t):
        def phi(x):
            z = torch.cat([x.relu(), (-x).relu()], -1)
            return torch.cat([z * z.roll(j, -1) for j in (1, 2, 3)], -1)
        return of_linear(t, phi, True)

    check("dpfp", "the paper's formula", "{rule: dpfp}", qkv, of_dpfp)

    strength = lambda t: torch.sigmoid(narrow(t, "beta"))

    def of_delta(t):
        o, s = delta.delta_rule_recurrence(*by_head(unit(t["q"]) * root, unit(t["k"]), t["v"]), strength(t).T.unsqueeze(0))
        return o[0].transpose(0, 1), turn(s)

    check("delta", "fla delta_rule/naive.py", "{rule: delta}", {**inputs, **beta}, of_delta)

    def of_gated_delta(t, g, b, scale):
        o, s = gated.naive_recurrent_gated_delta_rule(*batched(unit(t["q"]), unit(t["k"]), t["v"], b, g), scale=scale, output_final_state=True)
        return o[0], turn(s)

    check("gated_delta", "fla gated_delta_rule/naive.py", "{rule: gated_delta}", {**inputs, **scalar, **beta},
          lambda t: of_gated_delta(t, log_gate(t), strength(t), 1.0))
    check("gated_delta", "fla layers/gated_deltanet.py's gates", "{rule: gated_delta, gate: {form: softplus}, beta: {maximum: 2}, scale: sqrt_dim}",
          {**inputs, **scalar, **beta, "p.gate.a_log": random(H, scale=0.5)},
          lambda t: of_gated_delta(t, -torch.exp(t["p.gate.a_log"]) * F.softplus(narrow(t, "gate")), 2 * strength(t), D**-0.5))

    def of_kda(t, g, b, scale):
        o, s = kda.naive_recurrent_kda(*batched(unit(t["q"]), unit(t["k"]), t["v"], g, b), scale=scale, output_final_state=True)
        return o[0], turn(s)

    check("kda", "fla kda/naive.py", "{rule: kda}", {**inputs, **channel, **beta}, lambda t: of_kda(t, F.logsigmoid(wide(t, "gate")), strength(t), 1.0))
    check("kda", "fla kda/gate.py's gates", "{rule: kda, gate: {form: softplus}, beta: {maximum: 2}, scale: sqrt_dim}",
          {**inputs, **channel, **beta, "p.gate.a_log": random(H, scale=0.5)},
          lambda t: of_kda(t, -torch.exp(t["p.gate.a_log"])[:, None] * F.softplus(wide(t, "gate")), 2 * strength(t), D**-0.5))

    def of_comba(t, naive):
        q, k = unit(t["q"]), unit(t["k"])
        p, q = k * torch.sigmoid(t["p.comba.feedback"])[:, None], q - t["p.comba.correction"][:, None] * k
        o, s = naive(*batched(q, k, t["v"]), p=p.unsqueeze(0), g=log_gate(t).unsqueeze(0), beta=strength(t).unsqueeze(0), scale=1.0, output_final_state=True)
        return o[0], turn(s)

    of_it = {**inputs, **scalar, **beta, "p.comba.feedback": random(H), "p.comba.correction": random(H, scale=0.1)}
    check("comba", "fla comba/naive.py, the chunk form", "{rule: comba}", of_it, lambda t: of_comba(t, comba.naive_chunk_comba))
    check("comba", "fla comba/naive.py, the recurrent form", "{rule: comba, decay_first: true}", of_it, lambda t: of_comba(t, comba.naive_recurrent_comba))

    def of_gdn2(t):
        g = -torch.exp(t["p.gate.a_log"])[:, None] * F.softplus(wide(t, "gate"))
        o, s = gdn2.naive_recurrent_gdn2(*batched(unit(t["q"]), unit(t["k"]), t["v"], g, torch.sigmoid(wide(t, "gdn2.erase_gate")),
                                                  torch.sigmoid(wide(t, "gdn2.write_gate"))), output_final_state=True)
        return o[0], turn(s)

    check("gdn2", "fla gdn2/naive.py", f"{{rule: gdn2, factors: {{rank: {RANK}}}, gate: {{form: softplus}}, scale: sqrt_dim}}",
          {**inputs, **channel, "p.gate.a_log": random(H, scale=0.5), **low_rank("gdn2.erase_gate", H * D), **low_rank("gdn2.write_gate", H * D)}, of_gdn2)

    def of_product(t):
        steps = lambda x: x.transpose(1, 2).reshape(2 * T, H, -1)
        k = steps(unit(t["k"].unsqueeze(2) + wide(t, "delta_product.key").view(T, H, 2, D)))
        v = steps(t["v"].unsqueeze(2) + wide(t, "delta_product.value").view(T, H, 2, D))
        b = steps(2 * torch.sigmoid(narrow(t, "delta_product.beta")).view(T, H, 2, 1))[..., 0]
        o, s = product.naive_recurrent_gated_delta_product(*batched(unit(t["q"]), k, v, log_gate(t), b), None, None, output_final_state=True, num_householder=2)
        return o[0], turn(s)

    check("delta_product", "fla gated_delta_product/naive.py", f"{{rule: delta_product, factors: {{rank: {RANK}}}}}",
          {**inputs, **scalar, **low_rank("delta_product.key", 2 * H * D), **low_rank("delta_product.value", 2 * H * D), **full("delta_product.beta", 2 * H)}, of_product)

    def of_rwkv7(t):
        w = -math.exp(-0.5) * torch.sigmoid(wide(t, "gate", bounded=True))
        a, kk = torch.sigmoid(wide(t, "rwkv7.rate")), unit(t["k"] * t["p.rwkv7.removal"])
        k = t["k"] * (1 + (a - 1) * t["p.rwkv7.replacement"])
        o, s = dplr.dplr_recurrence(*by_head(t["q"] * root, k, t["v"], -kk, kk * a, w))
        return o[0].transpose(0, 1) + (t["q"] * k * t["p.rwkv7.bonus"]).sum(-1, keepdim=True) * t["v"], turn(s)

    check("rwkv7", "fla layers/rwkv7.py, generalized_delta_rule/dplr/naive.py", f"{{rule: rwkv7, unit: false, factors: {{rank: {RANK}}}}}",
          {**small, **low_rank("gate", H * D, rank=16, shift=-2), **low_rank("rwkv7.rate", H * D), "p.rwkv7.removal": torch.rand(H, D) + 0.4,
           "p.rwkv7.replacement": torch.rand(H, D), "p.rwkv7.bonus": random(H, D, scale=0.3)}, of_rwkv7)

    def of_longhorn(t):
        b, state, out = torch.sigmoid(wide(t, "longhorn.beta")), torch.zeros(H, D, D), []
        for i in range(T):
            k = t["k"][i]
            step = b[i] / (1 + b[i] * (k * k).sum(-1, keepdim=True))
            state = (1 - step[:, :, None] * (k * k)[:, None, :]) * state + (step * t["v"][i])[:, :, None] * k[:, None, :]
            out.append((state * t["q"][i][:, None, :]).sum(-1))
        return torch.stack(out), state.reshape(H, -1)

    check("longhorn", "the released step, as its paper writes it", f"{{rule: longhorn, diagonal: true, factors: {{rank: {RANK}}}}}",
          {**small, **low_rank("longhorn.beta", H * D)}, of_longhorn)

    def of_scan(t, step, decay, skip=None):
        columns = lambda x, head: x[:, head].T[None]
        out, states = [], []
        for head in range(H):
            y, s = scan(columns(t["v"], head), step(head), decay(head), columns(t["k"], head), columns(t["q"], head),
                        D=None if skip is None else skip[head], return_last_state=True)
            out.append(y[0].T)
            states.append(s[0])
        return torch.stack(out, 1), torch.stack(states).reshape(H, -1)

    def of_mamba(t):
        step = F.softplus(wide(t, "mamba.step"))
        return of_scan(t, lambda head: step[:, head].T[None], lambda head: -torch.exp(t["p.mamba.a_log"][head]), t["p.mamba.skip"])

    counting = torch.arange(1, D + 1).double().log()
    check("mamba", "mamba ops/selective_scan_interface.py", f"{{rule: mamba, unit: false, skip: true, factors: {{rank: {RANK}}}}}",
          {**small, **low_rank("mamba.step", H * D, shift=-3), "p.mamba.a_log": counting.repeat(H, D, 1) + random(H, D, D, scale=0.1), "p.mamba.skip": random(H, D)}, of_mamba)
    fixed = lambda t: lambda head: torch.exp(t["p.s4d.step"][head])[:, None].expand(D, T)[None]
    check("s4d", "mamba ops/selective_scan_interface.py", "{rule: s4d, unit: false, init: real}",
          {"q": small["q"], "k": small["k"], "v": qkv["v"], "p.s4d.step": torch.log(torch.rand(H, D) * 0.1 + 0.001), "p.s4d.real_rate": counting.repeat(H, 1)},
          lambda t: of_scan(t, fixed(t), lambda head: -torch.exp(t["p.s4d.real_rate"][head])[None].expand(D, D)))

    def of_s4d_lin(t):
        out, states = [], []
        pairs = lambda x: torch.stack([x, torch.zeros_like(x)], -1).reshape(1, D, -1)
        for head in range(H):
            modes = (-torch.exp(t["p.s4d.lin_rate"][head]) + 1j * t["p.s4d.frequency"][head])[None].expand(D, D)
            y, s = scan(t["v"][:, head].T[None], fixed(t)(head), modes, pairs(t["k"][:, head].T), pairs(t["q"][:, head].T), return_last_state=True)
            out.append(y[0].T)
            states.append(torch.cat([s[0].real, s[0].imag]))
        return torch.stack(out, 1), torch.stack(states).reshape(H, -1)

    check("s4d", "mamba ops/selective_scan_interface.py, complex", "{rule: s4d, unit: false}",
          {"q": small["q"], "k": small["k"], "v": qkv["v"], "p.s4d.step": torch.log(torch.rand(H, D) * 0.1 + 0.001),
           "p.s4d.lin_rate": random(H, D, scale=0.1) - 0.69, "p.s4d.frequency": torch.arange(D) * math.pi + torch.zeros(H, 1)}, of_s4d_lin)

    gsa = fla("gsa/naive.py")

    def of_gsa(t):
        g = F.logsigmoid(wide(t, "gsa.forget")) / 8
        s = 1 - g.exp()
        out, keys, values = [], torch.zeros(H, 64, D), torch.zeros(H, 64, D)
        for i in range(T):  # fla's two passes in one loop, kept differentiable; its own output is compared below
            a = g[i].exp()[..., None]
            keys, values = a * keys + s[i][..., None] * t["k"][i][:, None], a * values + s[i][..., None] * t["v"][i][:, None]
            p = torch.softmax(torch.einsum("hmd,hd->hm", keys, t["q"][i]) * D**-0.5, -1)
            out.append(torch.einsum("hm,hmd->hd", p, values))
        with torch.no_grad():
            theirs = gsa.naive_recurrent_gsa(*batched(t["q"], t["k"], t["v"], s, g))[0]
            assert distance(torch.stack(out), theirs[0]) < 1e-12
        return torch.stack(out), torch.cat([keys, values], 1).reshape(H, -1)

    check("gsa", "fla gsa/naive.py", f"{{rule: gsa, factors: {{rank: {RANK}}}}}", {**inputs, **low_rank("gsa.forget", H * 64)}, of_gsa)

    def of_mlstm(t):
        f, i, state, n, out = torch.sigmoid(narrow(t, "gate")), torch.exp(narrow(t, "mlstm.input")), torch.zeros(H, D, D), torch.zeros(H, D), []
        for j in range(T):
            k, q = t["k"][j] * D**-0.5, t["q"][j]
            state = f[j][:, None, None] * state + i[j][:, None, None] * t["v"][j][:, :, None] * k[:, None, :]
            n = f[j][:, None] * n + i[j][:, None] * k
            out.append((state * q[:, None, :]).sum(-1) / (n * q).sum(-1).abs().clamp(min=1)[:, None])
        return torch.stack(out), None

    check("mlstm", "the paper's formula, not stabilised", "{rule: mlstm, unit: false}", {**inputs, **full("gate", H, 2), **full("mlstm.input", H)}, of_mlstm)

    print("# Rules beside published code\n\nMade by `bench/published/compare_rules.py` (which says against what, and how): ||ours - theirs|| / ||theirs||, "
          "theirs in float64,\nours in float32. kgla and oja have no published code to run on a CPU; softmax, none and random_features are held to "
          "definitions in the tests.\n\n| rule | variant | reference | output, step | output, chunk | state | worst gradient |\n|---|---|---|---:|---:|---:|---:|")
    for row in ROWS:
        print("| " + " | ".join(row) + " |")


main()
