"""The demo model, and what transformers alone generates with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from schemas.generation import Request

ROOT = Path(__file__).parents[1]
MODEL = ROOT / ".models/SmolLM2-135M-Instruct"
PROMPTS = ROOT / "examples/prompts.parquet"


def demo_model() -> Path:
    """Its folder. Fails, not skips, where it is missing: the main job is not tested without it."""
    if not (MODEL / "config.json").exists():
        pytest.fail(f"{MODEL} is missing: make model")
    return MODEL


def demo_requests(tokenizer: Any, rows: Sequence[int], max_new_tokens: int, **options: Any) -> list[Request]:
    """Requests for these rows of the example prompts, through the tokenizer's chat template."""
    conversations = pq.read_table(PROMPTS, columns=["messages"]).to_pylist()
    made = []
    for row in rows:
        messages = conversations[row]["messages"]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tuple(tokenizer(text, add_special_tokens=False).input_ids)
        made.append(Request(row, ids, max_new_tokens, seed=row, **options))
    return made


def load_reference(path: Path = MODEL) -> Any:
    """The model as transformers runs it, in float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float32).eval()
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = 0
    return model


@torch.inference_mode()
def generate_alone(model: Any, request: Request) -> list[int]:
    """What `model.generate()` makes of one prompt by itself, greedily."""
    prompt = torch.tensor([request.prompt_token_ids])
    output = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=request.max_new_tokens, do_sample=False
    )
    return output[0, prompt.shape[1] :].tolist()
