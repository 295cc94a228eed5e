"""What benchmarks run on: the demo model, and prompts of a Parquet file with `messages` and maybe `category`."""

from argparse import ArgumentParser, Namespace
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from schemas.generation import Request

ROOT = Path(__file__).parents[2]


def arguments(description: str, **defaults: int) -> Namespace:
    """--model, --prompts, --per-category, --max-new-tokens and the like; every default is a whole number's option."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--model", type=Path, default=ROOT / ".models/SmolLM2-135M-Instruct")
    parser.add_argument("--prompts", type=Path, default=ROOT / "examples/prompts.parquet")
    for name, default in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    return parser.parse_args()


def read_conversations(path: Path, per_category: int) -> list[list[dict[str, str]]]:
    """The first `per_category` rows of each category, in the file's order."""
    taken: dict[Any, int] = defaultdict(int)
    kept = []
    for row in pq.read_table(path).to_pylist():
        category = row.get("category")
        taken[category] += 1
        if taken[category] <= per_category:
            kept.append(row["messages"])
    return kept


def make_requests(tokenizer: Any, conversations: list[list[dict[str, str]]], max_new_tokens: int) -> list[Request]:
    """Greedy requests, one for each conversation, through the tokenizer's chat template."""
    texts = [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in conversations]
    ids = [tuple(tokenizer(text, add_special_tokens=False).input_ids) for text in texts]
    return [Request(i, prompt, max_new_tokens, seed=i) for i, prompt in enumerate(ids)]
