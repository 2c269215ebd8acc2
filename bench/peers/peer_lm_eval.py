"""lm-evaluation-harness with its Hugging Face backend in float32: MMLU-style questions after five worked examples, in
its own wording and with its own scoring, on the same files that frostline reads."""

import csv
import glob
import json
import os

import lm_eval
import torch
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

SHOTS = 5


def read_questions(path):
    with open(path, encoding="utf-8", newline="") as file:
        return [
            {"question": row[0], "choices": row[1:5], "answer": "ABCD".index(row[5].strip())}
            for row in csv.reader(file)
            if len(row) >= 6
        ]


def write_lines(path, documents):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(document) + "\n" for document in documents)


def task_of(mmlu, subject, folder):
    """lm_eval's mmlu_<subject>, reading the given folder."""
    files = {}
    for split in ("dev", "test"):
        files[split] = os.path.abspath(os.path.join(folder, f"{subject}_{split}.jsonl"))
        write_lines(files[split], read_questions(os.path.join(mmlu, split, f"{subject}_{split}.csv")))
    letters = "\n".join(f"{letter}. {{{{choices[{i}]}}}}" for i, letter in enumerate("ABCD"))
    return {
        "task": f"peers_mmlu_{subject}",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files},
        "test_split": "test",
        "fewshot_split": "dev",
        "fewshot_config": {"sampler": "first_n"},
        "num_fewshot": SHOTS,
        "output_type": "multiple_choice",
        "description": "The following are multiple choice questions (with answers) about "
        + " ".join(subject.split("_"))
        + ".\n\n",
        "doc_to_text": "{{question.strip()}}\n" + letters + "\nAnswer:",
        "doc_to_choice": ["A", "B", "C", "D"],
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }


class LmEval:
    def __init__(self, threads, settings):
        torch.set_num_threads(threads)
        folder, name = os.path.split(settings["model"])
        source = {"pretrained_model_name_or_path": folder or ".", "gguf_file": name}
        model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
        self.model = HFLM(pretrained=model, tokenizer=tokenizer, device="cpu", batch_size=1)
        self.settings = settings
        self.version = f"lm_eval {lm_eval.__version__}, transformers {transformers.__version__}"

    def prepare(self, case):
        mmlu = self.settings["mmlu"]
        subjects = self.settings["subjects"] or sorted(
            os.path.basename(path).removesuffix("_test.csv") for path in glob.glob(f"{mmlu}/test/*_test.csv")
        )

        def body():
            tasks = [task_of(mmlu, subject, self.settings["work"]) for subject in subjects]
            results = lm_eval.simple_evaluate(
                model=self.model,
                tasks=tasks,
                limit=case["questions"],
                bootstrap_iters=0,
                task_manager=TaskManager(),
                log_samples=True,
            )
            samples = [sample for name in results["samples"] for sample in results["samples"][name]]
            right = sum(sample["acc"] for sample in samples)
            return {"questions": len(samples), "accuracy": right / len(samples)}

        return body
