"""Transformers' own chunked gated delta rule, and torch's exact causal attention, on random inputs of one shape."""

import torch
import transformers
from transformers.models.qwen3_next import modeling_qwen3_next


def rows(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


class Torch:
    def __init__(self, threads, settings):
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.version = f"torch {torch.__version__}, transformers {transformers.__version__}"

    def prepare(self, case):
        shape = (1, case["tokens"], case["heads"], case["head_dim"])
        return getattr(self, case["kind"])(shape)

    def chunk(self, shape):
        query, key = (torch.nn.functional.normalize(rows(*shape), dim=-1) for _ in range(2))
        value, decay, beta = rows(*shape), -0.6 * rows(*shape[:3]).sigmoid(), rows(*shape[:3]).sigmoid()

        def body():
            modeling_qwen3_next.torch_chunk_gated_delta_rule(
                query, key, value, decay, beta, output_final_state=True
            )

        return body

    def softmax(self, shape):
        query, key, value = (rows(shape[0], shape[2], shape[1], shape[3]) for _ in range(3))

        def body():
            torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

        return body
