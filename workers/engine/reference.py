"""The slow obvious decoder: one row, no cache, no batch, no drafts, the whole sequence in every forward.

What the engine generates is compared with this.
"""

from typing import Any

import torch

from schemas.generation import FinishReason, Request
from workers.engine.sampling import BatchSampling, target_tokens


@torch.inference_mode()
def reference_decode(
    model: Any, request: Request, eos_token_ids: frozenset[int], context_length: int
) -> tuple[tuple[int, ...], FinishReason]:
    """(generated tokens, finish reason) of one row by plain decoding, greedy or sampled as the request says."""
    sampling = BatchSampling.from_requests([request], model.device)
    tokens = list(request.prompt_token_ids)
    generated: list[int] = []
    while True:
        input_ids = torch.tensor([tokens], device=model.device)
        logits = model(input_ids, attention_mask=torch.ones_like(input_ids), use_cache=False).logits[:, -1:]
        index = torch.tensor([[len(generated)]], device=model.device)
        token = int(target_tokens(logits, sampling, index))
        tokens.append(token)
        generated.append(token)
        if token in eos_token_ids:
            return tuple(generated), "stop"
        if len(generated) == request.max_new_tokens or len(tokens) == context_length:
            return tuple(generated), "length"
