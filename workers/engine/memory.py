"""Running out of memory, told apart from other errors at one edge, and with what was held given back."""

import gc
from collections.abc import Callable, Iterator

import torch

from schemas.errors import OutOfMemory
from schemas.generation import Completion

# What allocators say that raise a plain RuntimeError: the CPU's, a Gaudi card's, and the libraries on a CUDA card.
_ALLOCATOR_TEXTS = ("can't allocate memory", "out of memory", "allocation failed", "std::bad_alloc", "_alloc_failed")


def raising_out_of_memory(completions: Iterator[Completion], release: Callable[[], None]) -> Iterator[Completion]:
    """The same completions. Raises OutOfMemory, after `release`, where there is too little for the batch."""
    try:
        yield from completions
        return
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else "no memory"
    # Out here: the error's traceback holds the tensors of the forward that failed.
    release()
    gc.collect()  # recorded forwards and what they run on hold each other
    raise OutOfMemory(f"the batch does not fit into memory: {reason}")


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return any(known in text for known in _ALLOCATOR_TEXTS)
