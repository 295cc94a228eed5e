"""Draft sources, by the name that a job gives them."""

from collections.abc import Callable

from schemas.errors import InvalidJob
from workers.devices.base import Device
from workers.engine.buckets import Buckets, Sizes
from workers.engine.drafts.auto import AutoDraft
from workers.engine.drafts.base import DraftSource, HostDraft
from workers.engine.drafts.decoder import DraftDecoder
from workers.engine.drafts.early_exit import EarlyExitDecoder
from workers.engine.drafts.model import EarlyExitDraft, ModelDraft
from workers.engine.drafts.ngram import NgramDraft
from workers.engine.drafts.none import NoDraft
from workers.engine.drafts.suffix import SuffixDraft
from workers.engine.drafts.translated import SharedTokensDraft, TextDraft
from workers.engine.drafts.translation import Bridge
from workers.engine.drafts.vocabulary import same_tokenizer, shared_vocabulary
from workers.engine.options import EngineOptions
from workers.engine.planner.defaults import sizes_for
from workers.engine.planner.job import DRAFT_WINDOWS
from workers.engine.target import Target


class DraftFactory:
    """Makes the draft sources of one engine. draft_model: where a job names one. draft_policy: its sizes."""

    def __init__(
        self,
        target: Target,
        draft_model: Target | None,
        device: Device,
        options: EngineOptions,
        buckets: Buckets,
        draft_policy: Sizes | None = None,
    ) -> None:
        self._draft_policy = draft_policy
        self._target, self._draft_model = target, draft_model
        self._device, self._options, self._buckets = device, options, buckets

    def make(self) -> DraftSource:
        """The source that the options name. Raises InvalidJob where it cannot be made for these models."""
        makers: dict[str, Callable[[], DraftSource]] = {
            "none": lambda: HostDraft("none", NoDraft(), self._target.device),
            "ngram": self._ngram,
            "suffix": self._suffix,
            "model": self._model,
            "early-exit": self._early_exit,
            "auto": self._auto,
        }
        return makers[self._options.draft]()

    def _ngram(self) -> DraftSource:
        options = self._options
        source = NgramDraft(options.batch_size, options.ngram_min, options.ngram_max)
        return HostDraft("ngram", source, self._target.device)

    def _suffix(self) -> DraftSource:
        options = self._options
        source = SuffixDraft(options.batch_size, options.suffix_depth, options.suffix_tokens)
        return HostDraft("suffix", source, self._target.device)

    def _model(self) -> DraftSource:
        if self._draft_model is None:
            raise InvalidJob("--draft model needs --draft-model, the model that drafts")
        batch_size, context = self._options.batch_size, self._draft_model.context_length
        policy = self._draft_policy or sizes_for(
            self._device.static_shapes, context, batch_size, DRAFT_WINDOWS, self._options.max_graphs
        )
        decoder = DraftDecoder(self._draft_model, self._device, batch_size, policy)
        ours, theirs = self._target.tokenizer, self._draft_model.tokenizer
        size, temperature = self._target.vocab_size, self._options.draft_temperature
        if same_tokenizer(ours, theirs):
            return ModelDraft(decoder, size, temperature)
        bridge = Bridge(ours, theirs)
        if self._options.vocabulary == "text":
            return TextDraft(decoder, bridge)
        return SharedTokensDraft(decoder, bridge, shared_vocabulary(ours, theirs), size, temperature)

    def _early_exit(self) -> DraftSource:
        if self._options.exit_layer is None:
            raise InvalidJob("--draft early-exit needs --exit-layer, how many of the model's layers draft")
        decoder = EarlyExitDecoder(self._target, self._options.exit_layer, self._device, self._buckets)
        return EarlyExitDraft(decoder, self._target.vocab_size, self._options.draft_temperature)

    def _auto(self) -> DraftSource:
        """All that can run for these models: an exit layer or a draft model has to be named."""
        sources = [self._ngram(), self._suffix()]
        if self._draft_model is not None:
            sources.append(self._model())
        if self._options.exit_layer is not None:
            sources.append(self._early_exit())
        return AutoDraft(sources)
