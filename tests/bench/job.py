"""What a job adds to the engine's own time: python -m tests.bench.job

Runs `jobctl run` on 64 prompts, broker and worker started and stopped for it, and the bare engine on the same
requests in between, median by median. The model's load is left out of both; it is printed.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from schemas.receipt import Manifest, ShardStatistics
from tests.bench.data import arguments, make_requests, read_conversations
from tests.bench.timing import seconds_of
from workers.devices import get_device
from workers.engine.engine import Engine
from workers.engine.models import load_target
from workers.engine.options import EngineOptions


def run_job(options: Namespace, directory: Path) -> tuple[float, ShardStatistics]:
    """(seconds of the whole command, what its receipts say) of a job in a directory of its own."""
    output = directory / "out"
    command = [sys.executable, "-m", "jobs.cli", "run", str(options.prompts), "--model", str(options.model)]
    command += ["--output", str(output), "--max-new-tokens", str(options.max_new_tokens)]
    environ = {**os.environ, "JOBCTL_DATA_DIR": str(directory / "data")}
    seconds = seconds_of(lambda: subprocess.run(command, env=environ, check=True, capture_output=True))
    return seconds, Manifest.from_json((output / "_manifest.json").read_text()).statistics


def engine_seconds(options: Namespace) -> float:
    """The bare engine, loaded anew in a process of its own as a worker's is."""
    command = [sys.executable, "-m", "tests.bench.job", "--engine-alone", "1", "--model", str(options.model)]
    command += ["--prompts", str(options.prompts), "--max-new-tokens", str(options.max_new_tokens)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def run_engine(options: Namespace) -> None:
    device = get_device("cpu")
    target = load_target(str(options.model), None, "float32", device)
    conversations = read_conversations(options.prompts, sys.maxsize)
    requests = make_requests(target.tokenizer, conversations, options.max_new_tokens)
    engine = Engine(target, device, EngineOptions())
    print(seconds_of(lambda: sum(1 for _ in engine.generate(requests))))


def main() -> None:
    options = arguments(__doc__ or "", max_new_tokens=128, num_runs=1, engine_alone=0)
    if options.engine_alone:
        return run_engine(options)
    added, over_engine = [], []
    for _ in range(options.num_runs):
        alone = engine_seconds(options)
        with tempfile.TemporaryDirectory() as directory:
            whole, spent = run_job(options, Path(directory))
        work = whole - spent.load_seconds
        added.append(work / spent.generate_seconds - 1)
        over_engine.append(work / alone - 1)
        print(
            f"command {whole:.1f} s: load {spent.load_seconds:.1f}, generate {spent.generate_seconds:.1f}, "
            f"commit {spent.commit_seconds:.2f}; the bare engine in another process {alone:.1f} s"
        )
    print(f"added to the engine's time within the job  {statistics.median(added):6.1%}")
    print(f"added to the bare engine's time            {statistics.median(over_engine):6.1%}")


if __name__ == "__main__":
    main()
