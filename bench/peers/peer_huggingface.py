"""Hugging Face Transformers in float32 on the weights of the GGUF file, dequantised by Transformers itself: a prompt
read without a cache, logits of its last token."""

import os

import torch
import transformers


class HuggingFace:
    def __init__(self, threads, settings):
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        folder, name = os.path.split(settings["model"])
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder or ".", gguf_file=name, dtype=torch.float32
        ).eval()
        self.ids = settings["ids"]
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def prepare(self, case):
        ids = torch.tensor([self.ids[: case["tokens"]]])

        def body():
            logits = self.model(ids, logits_to_keep=1, use_cache=False).logits[0, -1]
            return {"next_token": int(logits.argmax())}

        return body
