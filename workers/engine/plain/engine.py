"""The engine: requests in, completions out, a batch at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from schemas.generation import Completion, Request, SampleKey
from workers.devices.base import Device
from workers.engine.plain.batches import plan_batches
from workers.engine.plain.calling import call_generate
from workers.engine.plain.model import UNBOUNDED, PlainModel
from workers.engine.plain.rows import BatchRows, Drawing, Ending


class GenerateEngine:
    """`model.generate` over batches, with the sampling, constraints and ends of the speculative engine.

    In float32 its tokens are that engine's, row by row, and those of each row alone.
    """

    def __init__(self, model: PlainModel, device: Device, batch_size: int, kv_length: int | None = None) -> None:
        """kv_length: holds the context shorter than the model's."""
        self.model, self.device, self.kv_length = model, device, kv_length
        self._batch_size = batch_size

    def generate(
        self,
        requests: Sequence[Request],
        on_round: Callable[[], None] = lambda: None,
        on_admit: Callable[[Sequence[SampleKey]], None] = lambda keys: None,
    ) -> Iterator[Completion]:
        """Completions of all requests, after each batch. on_round is called before every step, on_admit with the rows
        of each batch before it begins; both may raise to stop.

        Raises RowFailed before anything runs where a prompt does not fit.
        """
        model = self.model
        for request in requests:
            model.check_prompt(len(request.prompt_token_ids), self.kv_length)
        # An encoder-decoder counts the completion alone, and no row goes on longer than the longest.
        context = UNBOUNDED if model.is_encoder_decoder else model.limits(self.kv_length).context_length
        for batch in plan_batches(requests, self._batch_size, model.sharing, context, model.shared_length):
            on_admit([request.key for request in batch])
            yield from self._run(batch, on_round)

    def _run(self, requests: Sequence[Request], on_round: Callable[[], None]) -> list[Completion]:
        batch = BatchRows([self._seen(request) for request in requests], self.model.limits(self.kv_length))
        on_round()
        if self.model.shared_length < UNBOUNDED:
            self._forget_rotation()

        def between_steps() -> None:
            self.device.step_end()
            on_round()

        prompts = [request.prompt_token_ids for request in requests]
        call_generate(self.model.model, prompts, batch.max_new_tokens, Drawing(batch), Ending(batch, between_steps))
        return [row.completion(max_draft_tokens=0) for row in batch.finished]

    def _seen(self, request: Request) -> Request:
        """What constraints and limits see of it: an encoder's prompt is no part of what the decoder continues."""
        return replace(request, prompt_token_ids=()) if self.model.is_encoder_decoder else request

    def _forget_rotation(self) -> None:
        """Dynamic rotary frequencies stay those of the longest row so far, until a short one comes."""
        call_generate(self.model.model, [[0]], max_new_tokens=1)
