#!/usr/bin/env python3
"""The peer in the same run: Transformers in float32, TF32 off, prefill of B sequences of T tokens of the same model.
usage: peer.py MODEL [BATCH [TOKENS]]"""
import sys, time
import torch
from transformers import AutoModelForCausalLM

batch, tokens = (int(a) for a in (sys.argv[2:] + ["16", "1024"])[:2]) if len(sys.argv) > 2 else (16, 1024)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
for attention in ("sdpa", "eager"):
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, attn_implementation=attention).cuda().eval()
    ids = torch.randint(3, 1000, (batch, tokens), device="cuda")
    with torch.no_grad():
        for turn in range(4):
            torch.cuda.synchronize()
            start = time.perf_counter()
            model(ids)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
    print(f"Transformers float32, {attention}: prefill B {batch} x T {tokens}: {batch * tokens / seconds:.0f} tokens/s", flush=True)
    del model
