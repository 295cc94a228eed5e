"""What speculation is worth, by source, batch size and category: python -m tests.bench.speculation --prompts FILE

The target's completions are generated once. What each draft source guesses at every place of them is recorded, and
replayed against this machine's measured step times with every fixed draft length and with the controller, so that these
differ by their decisions alone. Beside it, in `wall`, the engine's own time against plain decoding, run side by side.
"""

import argparse
import random
import statistics
import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import torch

from schemas.generation import Request
from tests.bench.data import ROOT, make_requests
from tests.bench.picture import save_tables
from tests.bench.replay import Clock, FixedLength, Trace, replay
from tests.bench.timing import median_ratio, side_by_side
from tests.bench.traces import Completions, host_traces, model_traces, plain_completions
from workers.devices import get_device
from workers.devices.base import Device
from workers.engine.draft_length import Controller
from workers.engine.drafts.decoder import DraftDecoder
from workers.engine.drafts.early_exit import EarlyExitDecoder, early_exit
from workers.engine.drafts.model import EarlyExitDraft, ModelDraft
from workers.engine.drafts.ngram import NgramDraft
from workers.engine.drafts.suffix import SuffixDraft
from workers.engine.engine import Engine
from workers.engine.models import load_target
from workers.engine.options import EngineOptions
from workers.engine.target import Target
from workers.engine.warm_up import measure_steps

LADDER = (0, 1, 2, 4, 8)
BATCH_SIZES = (1, 4, 8)
MIN_COPIES = 4  # of a category's rows, so that the end, where slots stay empty, weighs little
HOST_SOURCES: dict[str, Callable[[], NgramDraft | SuffixDraft]] = {
    "ngram": lambda: NgramDraft(1, 1, 3),
    "suffix": lambda: SuffixDraft(1),
}
SOURCES = (*HOST_SOURCES, "early-exit", "model")
TEMPLATE = (
    "Fill in this form for the city of {city} and write nothing else.\n"
    "Name of the city:\nName of the country:\nLanguage that most people speak there:\nOne thing that it is known for:"
)
CITIES = (
    *(
        "Paris",
        "London",
        "Rome",
        "Madrid",
        "Berlin",
        "Vienna",
        "Prague",
        "Lisbon",
        "Athens",
        "Dublin",
        "Oslo",
        "Warsaw",
    ),
    *("Cairo", "Tokyo", "Beijing", "Delhi", "Moscow", "Ottawa", "Lima", "Bogota", "Nairobi", "Tunis", "Hanoi", "Seoul"),
)


@dataclass(frozen=True)
class Bench:
    """The target, its rows by category, what it says, and what every source would have guessed."""

    options: Namespace
    target: Target
    device: Device
    categories: Mapping[str, list[Request]]
    completions: Completions
    traces: Mapping[str, Mapping[int, Trace]]

    def traces_of(self, source: str, category: str) -> list[Trace]:
        """Of the category's rows that were recorded for the source."""
        recorded = self.traces[source]
        return [recorded[r.row_index] for r in self.categories[category] if r.row_index in recorded]

    @property
    def requests(self) -> list[Request]:
        return [request for requests in self.categories.values() for request in requests]


def parse_arguments() -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=ROOT / ".models/SmolLM2-135M-Instruct")
    parser.add_argument("--prompts", type=Path, default=ROOT / "examples/prompts.parquet")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs/speculation.svg")
    for name, default in {"per-category": 5, "max-new-tokens": 48, "exit-layer": 8, "num-runs": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def main() -> None:
    bench = prepare(parse_arguments())
    say("step times, and replays")
    times = {size: step_clocks(bench, size) for size in BATCH_SIZES}
    rows = [
        replayed(bench, times[size][source], size, source, category)
        for size in BATCH_SIZES
        for source in SOURCES
        for category in bench.categories
    ]
    tables = [
        summary_table(rows, wall_ratios(bench)),
        category_table(rows),
        steps_table(times),
        templated_table(bench),
    ]
    save_tables(tables, bench.options.picture)


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def prepare(options: Namespace) -> Bench:
    device = get_device("cpu")
    target = load_target(str(options.model), None, "float32", device)
    categories = read_categories(target, options)
    requests = [request for rows in categories.values() for request in rows]
    say(f"the target's completions of {len(requests)} rows")
    completions = plain_completions(target, device, requests, 8)
    say("what the sources would have guessed")
    return Bench(
        options, target, device, categories, completions, record(options, target, device, requests, completions)
    )


def read_categories(target: Target, options: Namespace) -> dict[str, list[Request]]:
    chosen: dict[str, list[list[dict[str, str]]]] = defaultdict(list)
    for row in pq.read_table(options.prompts).to_pylist():
        if len(chosen[str(row.get("category"))]) < options.per_category:
            chosen[str(row.get("category"))].append(row["messages"])
    requests = make_requests(target.tokenizer, [m for rows in chosen.values() for m in rows], options.max_new_tokens)
    waiting = iter(requests)
    return {category: [next(waiting) for _ in rows] for category, rows in chosen.items()}


def record(
    options: Namespace, target: Target, device: Device, requests: Sequence[Request], completions: Completions
) -> dict[str, dict[int, Trace]]:
    engine = Engine(target, device, EngineOptions(8, "none"))
    traces = {name: host_traces(make(), requests, completions) for name, make in HOST_SOURCES.items()}
    requests = requests[:: options.per_category]  # one of each category: these have to be drafted step by step
    exit_decoder = EarlyExitDecoder(target, options.exit_layer, device, engine.buckets)
    exit_draft = EarlyExitDraft(exit_decoder, target.vocab_size)
    traces["early-exit"] = model_traces(exit_draft, engine, requests, completions)
    decoder = DraftDecoder(early_exit(target, options.exit_layer), device, 8)
    traces["model"] = model_traces(ModelDraft(decoder, target.vocab_size), engine, requests, completions)
    return traces


def step_clocks(bench: Bench, batch_size: int) -> dict[str, Clock]:
    """Measured seconds of verifying and drafting, by source, for this batch size."""
    engine = Engine(bench.target, bench.device, EngineOptions(batch_size, "ngram", LADDER))
    steps = measure_steps(engine._runner_for([256], [320]), engine.buckets, LADDER)
    drafting = {k: k * seconds_of_draft_step(bench, batch_size) for k in LADDER}
    return {source: Clock(steps, None if source in HOST_SOURCES else drafting) for source in SOURCES}


def seconds_of_draft_step(bench: Bench, batch_size: int) -> float:
    decoder = DraftDecoder(early_exit(bench.target, bench.options.exit_layer), bench.device, batch_size)
    decoder.begin(320)
    for slot in range(batch_size):
        decoder.start(slot, [1] * 200)
    seconds = []
    with torch.inference_mode():
        _, position = decoder.last_logits(1)
        for step in range(9):
            began = time.perf_counter()
            decoder.step(torch.ones(batch_size, 1, dtype=torch.int64), position + 1 + step)
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


@dataclass(frozen=True)
class Row:
    """One line of the table. Ratios are speeds: over plain decoding, and the controller's over the best fixed k."""

    batch_size: int
    source: str
    category: str
    acceptance: float
    mean_length: float
    steps_per_token: float
    best_k: int
    best_over_plain: float
    controller_over_plain: float
    controller_over_best: float


def replayed(bench: Bench, clock: Clock, batch_size: int, source: str, category: str) -> Row:
    """The controller has seen the other categories before, as in a job of mixed rows."""
    controller = Controller(LADDER, batch_size)
    controller.warm_up(clock.step_seconds)
    others = [trace for name in bench.categories if name != category for trace in bench.traces_of(source, name)]
    random.Random(1).shuffle(others)
    replay(others, controller, clock, batch_size, source)
    traces = bench.traces_of(source, category) * max(batch_size, MIN_COPIES)
    random.Random(0).shuffle(traces)
    fixed = {k: replay(traces, FixedLength(k), clock, batch_size, source) for k in LADDER}
    chosen = replay(traces, controller, clock, batch_size, source)
    best_k = min(fixed, key=lambda k: fixed[k].seconds)
    accepted, drafted, rounds = acceptance_of(traces, k=4)
    num_steps = sum(chosen.rounds.values())
    return Row(
        batch_size,
        source,
        category,
        acceptance=accepted / max(drafted, 1),
        mean_length=1 + accepted / max(rounds, 1),
        steps_per_token=num_steps * batch_size / chosen.num_tokens,
        best_k=best_k,
        best_over_plain=fixed[0].seconds / fixed[best_k].seconds,
        controller_over_plain=fixed[0].seconds / chosen.seconds,
        controller_over_best=fixed[best_k].seconds / chosen.seconds,
    )


def acceptance_of(traces: Sequence[Trace], k: int) -> tuple[int, int, int]:
    """(accepted tokens, drafted tokens, rounds with drafts) of rows that draft k tokens in every round."""
    accepted = drafted = rounds = 0
    for trace in traces:
        place = 0
        while place < len(trace):
            num_drafted = min(trace[place].num_available, k, len(trace) - place - 1)
            num_right = min(trace[place].num_right, num_drafted)
            accepted, drafted, rounds = accepted + num_right, drafted + num_drafted, rounds + bool(num_drafted)
            place += num_right + 1
    return accepted, drafted, rounds


def wall_ratios(bench: Bench) -> dict[tuple[int, str], tuple[float, float]]:
    """(plain tokens/s, speed with drafts over plain) by batch size and source, from the engine's own time."""
    found = {}
    for size in BATCH_SIZES:
        say(f"wall time at batch {size}")
        requests = bench.requests[:: max(len(bench.requests) // (size + 2), 1)][: size + 2]
        runs = [engine_run(bench, size, source, requests) for source in ("none", *SOURCES)]
        plain, *others = side_by_side(runs, bench.options.num_runs)
        num_tokens = sum(len(bench.completions[request.row_index]) for request in requests)
        for source, taken in zip(SOURCES, others, strict=True):
            found[size, source] = statistics.median(num_tokens / one for one in plain), median_ratio(plain, taken)
    return found


def engine_run(bench: Bench, batch_size: int, source: str, requests: Sequence[Request]) -> Callable[[], None]:
    layer = bench.options.exit_layer
    options = EngineOptions(batch_size, source, LADDER, exit_layer=layer)  # type: ignore[arg-type]
    draft_model = early_exit(bench.target, layer) if source == "model" else None
    engine = Engine(bench.target, bench.device, options, draft_model)
    list(engine.generate(requests[:1]))  # measures steps

    def run() -> None:
        for completion in engine.generate(requests):
            if completion.token_ids != bench.completions[completion.row_index]:
                raise SystemExit(f"{source}, batch {batch_size}: row {completion.row_index} is not the target's own")

    return run


Table = tuple[str, list[str], list[list[str]]]


def summary_table(rows: Sequence[Row], wall: Mapping[tuple[int, str], tuple[float, float]]) -> Table:
    header = ["batch", "draft", "acceptance", "mean length", "steps/token", "best fixed k", "controller", "lowest",
              "of best, lowest", "plain tok/s", "wall"]  # fmt: skip
    lines = []
    for size, source in wall:
        of = [row for row in rows if (row.batch_size, row.source) == (size, source)]
        mean = lambda name, of=of: statistics.mean(getattr(row, name) for row in of)  # noqa: E731
        lines.append([
            str(size), source, f"{mean('acceptance'):.2f}", f"{mean('mean_length'):.2f}",
            f"{mean('steps_per_token'):.2f}", f"{mean('best_over_plain'):.2f}", f"{mean('controller_over_plain'):.2f}",
            f"{min(row.controller_over_plain for row in of):.3f}", f"{min(row.controller_over_best for row in of):.3f}",
            f"{wall[size, source][0]:.1f}", f"{wall[size, source][1]:.2f}",
        ])  # fmt: skip
    return (
        "Speed over plain decoding: means over categories, lowest of any; replayed, and wall time beside it",
        header,
        lines,
    )


def category_table(rows: Sequence[Row], batch_size: int = 8) -> Table:
    header = ["category", *[f"{source} {what}" for source in SOURCES for what in ("acc.", "best k", "controller")]]
    lines = []
    for category in dict.fromkeys(row.category for row in rows):
        of = {row.source: row for row in rows if (row.batch_size, row.category) == (batch_size, category)}
        cells = [
            [
                f"{of[s].acceptance:.2f}",
                f"{of[s].best_over_plain:.2f} (k={of[s].best_k})",
                f"{of[s].controller_over_plain:.2f}",
            ]
            for s in SOURCES
        ]
        lines.append([category, *[cell for group in cells for cell in group]])
    return f"By category, batch {batch_size}: acceptance at k=4, best fixed k and controller over plain", header, lines


def steps_table(times: Mapping[int, Mapping[str, Clock]]) -> Table:
    header = ["batch", *[f"k={k}" for k in LADDER], "a draft's step"]
    lines = []
    for size, clocks in times.items():
        steps, drafting = clocks["model"].step_seconds, clocks["model"].draft_seconds
        assert drafting is not None
        lines.append([str(size), *[f"{1000 * steps[k]:.1f}" for k in LADDER], f"{1000 * drafting[1]:.1f}"])
    return "Milliseconds of a target step with k drafted tokens a row", header, lines


def templated_table(bench: Bench) -> Table:
    """Rows that fill in one form: what finished rows are worth to the next."""
    conversations = [[{"role": "user", "content": TEMPLATE.format(city=city)}] for city in CITIES]
    requests = make_requests(bench.target.tokenizer, conversations, bench.options.max_new_tokens)
    completions = plain_completions(bench.target, bench.device, requests, 8)
    lines = []
    for name, make in HOST_SOURCES.items():
        traces = list(host_traces(make(), requests, completions).values())
        num_tokens = sum(map(len, traces))
        steps = [
            sum(replay([t], FixedLength(k), Clock(dict.fromkeys(LADDER, 1.0)), 1).rounds.total() for t in traces)
            for k in LADDER
        ]
        lines.append([name, *[f"{count / num_tokens:.3f}" for count in steps]])
    return "A templated job: target steps per token at fixed k", ["draft", *[f"k={k}" for k in LADDER]], lines


if __name__ == "__main__":
    main()
