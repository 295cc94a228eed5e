"""The slow obvious decoder: one row, no cache, no batch, no drafts, the whole sequence in every forward.

What the engine generates is compared with this.
"""

from typing import Any

import torch

from schemas.generation import FinishReason, Request
from workers.engine.constraints import Context, ending_ids
from workers.engine.sampling import BatchSampling, constrained, target_noise, target_tokens
from workers.engine.stops import Decode, StopTexts


@torch.inference_mode()
def reference_decode(
    model: Any, request: Request, eos_token_ids: frozenset[int], context_length: int, decode: Decode | None = None
) -> tuple[tuple[int, ...], FinishReason]:
    """(generated tokens, finish reason) of one row by plain decoding, greedy or sampled as the request says.

    decode: token ids to text, needed for stop texts.
    """
    vocab_size = model.config.get_text_config().vocab_size
    sampling = BatchSampling.from_requests([request], model.device, vocab_size, eos_token_ids)
    stops = StopTexts(request.stop, decode, request.min_new_tokens) if decode and request.stop else None
    tokens = list(request.prompt_token_ids)
    generated: list[int] = []
    while True:
        input_ids = torch.tensor([tokens], device=model.device)
        logits = model(input_ids, attention_mask=torch.ones_like(input_ids), use_cache=False).logits[:, -1:]
        index = torch.tensor([[len(generated)]], device=model.device)
        allowed = constrained(logits, sampling, index, _context(input_ids, request))
        token = int(target_tokens(allowed, sampling, target_noise(sampling, index, vocab_size)))
        tokens.append(token)
        generated.append(token)
        if stops is not None and (cut := stops.cut(generated, 1)):
            return tuple(generated[: cut.num_tokens]), "stop"
        if token in ending_ids(request, eos_token_ids):
            return tuple(generated), "stop"
        if len(generated) == request.max_new_tokens or len(tokens) == context_length:
            return tuple(generated), "length"


def _context(input_ids: torch.Tensor, request: Request) -> Context:
    num_tokens, num_prompt = torch.tensor([[input_ids.shape[1]], [len(request.prompt_token_ids)]]).to(input_ids.device)
    return Context(input_ids, num_tokens, num_prompt, input_ids[:, :0])
