"""jobctl buckets: the shapes that a job's forwards would have on a device that compiles each of them."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from jobs.cli.options import chosen_options
from jobs.cli.output import output_option, print_json
from jobs.cli.spec import build_spec
from jobs.local.nodes import WorkerPackagesMissing
from schemas.errors import InvalidJob
from schemas.job import JobSpec

F = TypeVar("F", bound=Callable[..., Any])

MODULE = "workers.engine.show_buckets"
GIB = 2**30
# The keys of JobSpec that shapes follow from.
KEYS = (
    "model",
    "revision",
    "dtype",
    "batch_size",
    "max_graphs",
    "max_new_tokens",
    "shard_rows",
    "n",
    "draft",
    "draft_lengths",
    "draft_model",
    "draft_revision",
    "exit_layer",
    "prompt_column",
    "messages_column",
    "params_column",
    "system_prompt",
)


@click.command()
@chosen_options(KEYS)
@click.option(
    "--max-model-len",
    "kv_length",
    type=click.IntRange(min=2),
    help="Tokens of prompt and completion, a job's --kv-length; the model's context where not given.",
)
@click.option("--device-memory", type=click.FloatRange(min=0, min_open=True), metavar="GIB", help="What must hold it.")
@output_option
def command(spec_file: Path | None, device_memory: float | None, output: str, **given: Any) -> None:
    """Show the shapes that a job's forwards would have, what is padding in them, and the memory they need.

    \b
    jobctl buckets prompts.parquet --model HuggingFaceTB/SmolLM2-135M-Instruct --batch-size 64 --max-graphs 40

    Where each shape is a compilation (hpu), a worker plans these very shapes from the input's lengths and runs each
    once before the first row. On cpu and cuda sizes go in finer steps.
    """
    spec = build_spec(given, spec_file)
    found = planned_shapes(spec, None if device_memory is None else int(device_memory * GIB))
    if output == "json":
        print_json(found)
    else:
        click.echo(described(found, spec))


def planned_shapes(spec: JobSpec, device_bytes: int | None) -> dict[str, Any]:
    """From a process of its own, that has the model's tokenizer. Raises InvalidJob with what it says is wrong."""
    if find_spec("torch") is None:
        raise WorkerPackagesMissing('buckets needs torch and transformers: pip install "specbatch[worker]"')
    memory = [] if device_bytes is None else ["--device-memory", str(device_bytes)]
    words = [sys.executable, "-m", MODULE, *memory]
    done = subprocess.run(words, input=spec.model_dump_json(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise InvalidJob((done.stderr.strip().splitlines() or ["it ended without a word"])[-1].removeprefix("error: "))
    shapes: dict[str, Any] = json.loads(done.stdout)
    return shapes


def described(found: Mapping[str, Any], spec: JobSpec) -> str:
    """Aligned lines."""
    lines = {
        "graph keys": f"{found['num_graph_keys']} of the target, {found['num_draft_graph_keys']} of drafts, "
        f"at most {spec.max_graphs}",
        **_sizes("", found["target"]),
        **(_sizes("draft ", found["draft"]) if found["draft"] else {}),
        "padding": f"{_percent(found['padding'])} of the positions that prefills compute",
        "empty slots": f"{_percent(found['shares']['empty_slots'])} of slots in rounds, if rows take all their tokens",
        "masked cache": f"{_percent(found['shares']['masked_kv'])} of the cache positions that rows read, likewise",
        "rejected": "window positions after a rejected draft show in a run's receipts",
        "memory": _memory(found["memory"]),
    }
    width = max(map(len, lines))
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in lines.items())


def _sizes(whose: str, sizes: Mapping[str, Any]) -> dict[str, str]:
    prefills = [f"{bucket['num_rows']}x{bucket['length']}" for bucket in sizes["prefill"]]
    windows, lengths = _listed(sizes["windows"]), _listed(sizes["kv_lengths"])
    decode = f"{sizes['num_slots']} slots, windows of {windows}, cache lengths {lengths}"
    prefill = {f"{whose}prefill": f"{_listed(prefills)} (rows x length)"} if prefills else {}
    return {**prefill, f"{whose}decode": decode}


def _memory(memory: Mapping[str, Any]) -> str:
    parts = ", ".join(f"{part} {_gib(memory[part + '_bytes'])}" for part in ("weight", "cache", "logits"))
    needed = f"{_gib(memory['total_bytes'])} ({parts}), and {memory['graph_reserve']:.0%} of the device's for graphs"
    if memory["device_bytes"] is None:
        return needed
    return f"{needed}; {memory['max_batch_size']} slots or {memory['max_kv_length']} positions a slot would fit"


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
