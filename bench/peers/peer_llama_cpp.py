"""llama.cpp through llama-cpp-python: the weights widened to float32 (dequantise.py), and as they are stored in the
file. Its own defaults (batches of 512) but for the context, which is as long as the longest prompt."""

import llama_cpp
import numpy

import dequantise


class Llama:
    def __init__(self, path, threads, settings):
        self.ids = settings["ids"]
        self.llama = llama_cpp.Llama(
            model_path=path,
            n_ctx=len(self.ids) + 8,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
        self.version = f"llama-cpp-python {llama_cpp.__version__}"

    def prepare(self, case):
        ids = self.ids[: case["tokens"]]

        def body():
            self.llama.reset()
            self.llama.eval(ids)
            logits = llama_cpp.llama_get_logits_ith(self.llama.ctx, -1)
            values = numpy.ctypeslib.as_array(logits, shape=(self.llama.n_vocab(),))
            return {"next_token": int(values.argmax())}

        return body


class LlamaF32(Llama):
    def __init__(self, threads, settings):
        dequantise.widen(settings["model"], settings["widened"])
        super().__init__(settings["widened"], threads, settings)


class LlamaStored(Llama):
    def __init__(self, threads, settings):
        super().__init__(settings["model"], threads, settings)
