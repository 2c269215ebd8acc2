#!/usr/bin/env python3
"""Writes a model of a known shape with random weights, for speed where no checkpoint can be had.
usage: make_model.py FOLDER [smollm2|1b]      needs torch and safetensors"""
import json, os, sys
import torch
from safetensors.torch import save_file

folder, shape = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "smollm2"
hidden, layers, heads, kv_heads, inner, vocabulary = {
    "smollm2": (576, 30, 9, 3, 1536, 49152), "1b": (2048, 16, 32, 8, 8192, 128256)}[shape]
dim = hidden // heads
torch.manual_seed(1)
def random(*size, scale=0.02): return torch.randn(*size) * scale
weights = {"model.embed_tokens.weight": random(vocabulary, hidden), "model.norm.weight": torch.ones(hidden)}
for i in range(layers):
    p = f"model.layers.{i}."
    weights |= {p + "input_layernorm.weight": torch.ones(hidden), p + "post_attention_layernorm.weight": torch.ones(hidden),
                p + "self_attn.q_proj.weight": random(heads * dim, hidden), p + "self_attn.k_proj.weight": random(kv_heads * dim, hidden),
                p + "self_attn.v_proj.weight": random(kv_heads * dim, hidden), p + "self_attn.o_proj.weight": random(hidden, heads * dim),
                p + "mlp.gate_proj.weight": random(inner, hidden), p + "mlp.up_proj.weight": random(inner, hidden),
                p + "mlp.down_proj.weight": random(hidden, inner)}
os.makedirs(folder, exist_ok=True)
save_file({k: v.to(torch.bfloat16) for k, v in weights.items()}, folder + "/model.safetensors")
json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
           "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": dim, "intermediate_size": inner,
           "vocab_size": vocabulary, "rms_norm_eps": 1e-5, "rope_theta": 100000, "max_position_embeddings": 131072, "hidden_act": "silu",
           "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}, open(folder + "/config.json", "w"))
