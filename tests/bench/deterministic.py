"""What --deterministic costs, beside the same jobs without it: python -m tests.bench.deterministic"""

import statistics

from tests.bench.data import arguments, make_requests, read_conversations
from tests.bench.engine import EngineRun
from tests.bench.timing import median_ratio, side_by_side
from workers.devices import get_device
from workers.engine.engine import Engine
from workers.engine.models import load_target
from workers.engine.options import EngineOptions


def main() -> None:
    options = arguments(__doc__ or "", per_category=3, max_new_tokens=48, batch_size=8, num_draft_tokens=4, num_runs=3)
    device = get_device("cpu")
    target = load_target(str(options.model), None, "float32", device)
    conversations = read_conversations(options.prompts, options.per_category)
    requests = make_requests(target.tokenizer, conversations, options.max_new_tokens)
    longest = max(len(request.prompt_token_ids) for request in requests) + options.max_new_tokens
    lengths, runs = (0, options.num_draft_tokens), []
    for draft in ("none", "ngram"):
        free = EngineOptions(options.batch_size, draft, lengths)
        fixed = EngineOptions(options.batch_size, draft, lengths, deterministic=True, kv_length=longest)
        runs.append(EngineRun(f"{draft}", Engine(target, device, free), requests))
        runs.append(EngineRun(f"{draft}, deterministic", Engine(target, device, fixed), requests))
    seconds = side_by_side(runs, options.num_runs)
    print(
        f"{len(requests)} prompts, batch {options.batch_size}, windows of {lengths[-1] + 1}, cache of {longest} tokens"
    )
    for run, taken in zip(runs, seconds, strict=True):
        rate = statistics.median(run.num_tokens / one for one in taken)
        print(f"{run.name:24}{rate:8.1f} tokens/s{median_ratio(seconds[0], taken):8.2f} of plain decoding")


if __name__ == "__main__":
    main()
