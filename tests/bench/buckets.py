"""Shapes and padding of planned buckets beside vllm-gaudi's strategies: python -m tests.bench.buckets

--prompts takes a Parquet file, its lengths those of --model's tokenizer. The last table is of the engine itself, run on
the file's lengths with a tiny random model and a device that counts shapes.
"""

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from schemas.generation import Request
from tests.bench.data import arguments, make_requests, read_conversations
from tests.bench.vllm_gaudi import STRATEGIES
from tests.engine.conftest import VOCAB_SIZE, PlainDevice, tiny_model
from workers.engine.engine import Engine
from workers.engine.options import EngineOptions
from workers.engine.planner.job import JobLengths, JobShapes, plan_job
from workers.engine.planner.memory import ModelSize
from workers.engine.planner.padding import Padding
from workers.engine.planner.rounds import RowLength
from workers.engine.target import Target

ALL = 10**9
OPTIONS = EngineOptions(batch_size=64, draft_lengths=(0, 1, 2, 4, 8), max_graphs=40)
# SmolLM2-135M's in bfloat16; a context that holds prompts of 4,096 tokens.
SIZE = ModelSize(134_515_008, 269_030_016, 23_040, 49_152, 8192)
LONGEST = 4096
# What its own code counts (commit 091bbadd) with 64 sequences and a context of 4,096: prompt and decode shapes, and
# those of decodes with 4 drafted tokens where that was run.
THEIRS = {"lin": "1024 + 58", "exp": "77 + 43, drafting 77 + 114", "pad": "143 + 62"}


@dataclass(frozen=True)
class Lengths:
    """Prompt lengths, in a job's order."""

    name: str
    prompts: list[int]

    def job(self, max_new_tokens: int) -> JobLengths:
        rows = [RowLength(prompt, max_new_tokens) for prompt in self.prompts]
        return JobLengths([rows[first : first + 64] for first in range(0, len(rows), 64)], is_whole=True)


def main() -> None:
    given = arguments(__doc__, max_new_tokens=128, run_tokens=32)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    requests = make_requests(tokenizer, read_conversations(given.prompts, ALL), given.run_tokens)
    file = Lengths(given.prompts.stem, [len(request.prompt_token_ids) for request in requests])
    uniform = Lengths(f"uniform to {LONGEST}", list(range(1, LONGEST + 1)))
    random.Random(0).shuffle(uniform.prompts)
    console = Console(width=150)
    for lengths in (file, uniform):
        console.print(strategies_table(lengths, given.max_new_tokens))
        console.print(shapes_table(lengths, given.max_new_tokens))
    shapes = plan_job(file.job(given.run_tokens), OPTIONS, [SIZE])
    console.print(run_table(shapes, run(shapes, requests, max(file.prompts) + given.run_tokens)))


def strategies_table(lengths: Lengths, max_new_tokens: int) -> Table:
    columns = ("strategy", "prompt lengths", "padded queries", "mean of prompts", "its shapes")
    table = Table(*columns, title=f"{lengths.name}: prefills")
    longest = max(lengths.prompts)
    for name, strategy in STRATEGIES.items():
        table.add_row(name, *padding_cells(lengths.prompts, strategy(-(-longest // 128) * 128)), THEIRS[name])
    shapes = plan_job(lengths.job(max_new_tokens), OPTIONS, [SIZE])
    sizes = [bucket.length for bucket in shapes.target.borders.prefill]
    num_prefills = sum(key.phase == "prefill" for key in shapes.keys)
    counted = f"{num_prefills} + {len(shapes.keys) - num_prefills}, drafting 0/1/2/4/8"
    table.add_row("planned", *padding_cells(lengths.prompts, sizes), counted)
    return table


def padding_cells(prompts: Sequence[int], sizes: Sequence[int]) -> tuple[str, str, str]:
    """Number of sizes; padding's share of all positions; mean share of a prompt's positions."""
    padding = Padding()
    padded_to = [sizes[bisect_left(sizes, prompt)] for prompt in prompts]
    for prompt, size in zip(prompts, padded_to, strict=True):
        padding.add_prefill(1, size, prompt)
    mean = sum(1 - prompt / size for prompt, size in zip(prompts, padded_to, strict=True)) / len(prompts)
    return str(len(sizes)), f"{padding.padded_query / padding.query:.1%}", f"{mean:.1%}"


def shapes_table(lengths: Lengths, max_new_tokens: int) -> Table:
    """Without a draft of its own, and with a draft model and early exits beside."""
    columns = ("draft", "target's shapes", "draft's", *Padding().shares())
    table = Table(*columns, title=f"{lengths.name}: planned, at most 40")
    job = lengths.job(max_new_tokens)
    for name, options, sizes in (
        ("ngram", OPTIONS, [SIZE]),
        ("model", replace(OPTIONS, draft="model"), [SIZE, SIZE]),
        ("early-exit", replace(OPTIONS, draft="early-exit", exit_layer=8), [SIZE]),
    ):
        shapes = plan_job(job, options, sizes)
        table.add_row(name, str(len(shapes.keys)), str(len(shapes.draft_keys)), *share_cells(shapes.target.padding))
    return table


def share_cells(padding: Padding) -> list[str]:
    return ["-" if share is None else f"{share:.1%}" for share in padding.shares().values()]


def run(shapes: JobShapes, requests: Sequence[Request], max_length: int) -> tuple[Engine, Padding]:
    """The engine over all prompts, shard by shard as a worker has them, with a vocabulary of few tokens."""
    model = tiny_model("llama", max_position_embeddings=max_length, hidden_size=8, intermediate_size=8)
    engine = Engine(Target(model), PlainDevice(static_shapes=True), OPTIONS, policy=shapes.target.borders)
    few = [replace(r, prompt_token_ids=tuple(token % VOCAB_SIZE for token in r.prompt_token_ids)) for r in requests]
    total = Padding()
    for first in range(0, len(few), 64):
        list(engine.generate(few[first : first + 64]))
        total.add(engine.padding)
    return engine, total


def run_table(shapes: JobShapes, ran: tuple[Engine, Padding]) -> Table:
    engine, padding = ran
    columns = ("planned", "warmed up", "warm-up", "new after it", *padding.shares())
    table = Table(*columns, title="the engine over all prompts, a tiny model, ngram")
    found = engine.shapes()
    counts = (len(shapes.keys), found["num_warmed"], f"{found['warm_up_seconds']} s")
    table.add_row(*map(str, counts), str(found["num_new"]), *share_cells(padding))
    return table


if __name__ == "__main__":
    main()
