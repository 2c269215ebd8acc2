"""A checkpoint as large as asked for, of random bfloat16 weights, in Llama 3 8B's shape with any number of layers: for measuring
models that do not fit into memory once widened. Its numbers mean nothing, its tokenizer is missing (give --ids to what reads it).

usage: python3 bench/large_model.py FOLDER LAYERS        (32 layers: 14.5 GB)
"""

import json
import os
import struct
import sys

WIDTH, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCABULARY = 4096, 32, 8, 128, 14336, 32000
LAYERS_A_FILE = 4
BLOCK = 1 << 25

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": MLP,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def layer_tensors(layer):
    prefix = f"model.layers.{layer}."
    return {
        prefix + "input_layernorm.weight": [WIDTH],
        prefix + "self_attn.q_proj.weight": [HEADS * HEAD_DIM, WIDTH],
        prefix + "self_attn.k_proj.weight": [KV_HEADS * HEAD_DIM, WIDTH],
        prefix + "self_attn.v_proj.weight": [KV_HEADS * HEAD_DIM, WIDTH],
        prefix + "self_attn.o_proj.weight": [WIDTH, HEADS * HEAD_DIM],
        prefix + "post_attention_layernorm.weight": [WIDTH],
        prefix + "mlp.gate_proj.weight": [MLP, WIDTH],
        prefix + "mlp.up_proj.weight": [MLP, WIDTH],
        prefix + "mlp.down_proj.weight": [WIDTH, MLP],
    }


def random_block():
    """bfloat16 numbers of either sign between 2^-7 and 2^-6."""
    mantissa_and_sign = int.from_bytes(b"\x7f\x80" * (BLOCK // 2), "little")
    exponent = int.from_bytes(b"\x00\x3c" * (BLOCK // 2), "little")
    return (int.from_bytes(os.urandom(BLOCK), "little") & mantissa_and_sign | exponent).to_bytes(BLOCK, "little")


def write_file(path, tensors, block):
    header, at = {}, 0
    for name, shape in tensors.items():
        count = 2
        for size in shape:
            count *= size
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            first, end = entry["data_offsets"]
            if "norm" in name:
                file.write(b"\x80\x3f" * ((end - first) // 2))
                continue
            # Another start for every tensor, so that no two are alike.
            shift = first * 2654435761 % BLOCK // 2 * 2
            rotated = block[shift:] + block[:shift]
            for done in range(first, end, BLOCK):
                file.write(rotated[: end - done])
    return at


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit() or int(sys.argv[2]) < 1:
        sys.exit(__doc__)
    folder, layers = sys.argv[1], int(sys.argv[2])
    os.makedirs(folder, exist_ok=True)
    parts = [{"model.embed_tokens.weight": [VOCABULARY, WIDTH], "lm_head.weight": [VOCABULARY, WIDTH]}]
    parts[0]["model.norm.weight"] = [WIDTH]
    for layer in range(layers):
        if layer % LAYERS_A_FILE == 0:
            parts.append({})
        parts[-1].update(layer_tensors(layer))
    block, files, total = random_block(), {}, 0
    for number, tensors in enumerate(parts, 1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        total += write_file(os.path.join(folder, name), tensors, block)
        files.update(dict.fromkeys(tensors, name))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": files}, file)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(CONFIG, num_hidden_layers=layers), file)
    print(f"{folder}: {total / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
