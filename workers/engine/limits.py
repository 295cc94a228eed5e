"""How many tokens a row may have: its prompt, and what the context leaves for it to generate."""

from schemas.errors import RowFailed
from schemas.generation import Request


def check_prompt_length(num_prompt_tokens: int, context_length: int) -> None:
    """Raises RowFailed unless the prompt has a token and leaves the context room for one more."""
    if num_prompt_tokens == 0:
        raise RowFailed("empty_prompt", "the prompt has no tokens; give it some text")
    if num_prompt_tokens >= context_length:
        raise RowFailed(
            "prompt_too_long",
            f"the prompt has {num_prompt_tokens} tokens, and the model's context of {context_length} must hold "
            "at least one more; shorten the prompt",
        )


def max_generated_tokens(request: Request, context_length: int) -> int:
    """The row's max_new_tokens, or less where its prompt leaves the context less."""
    return min(request.max_new_tokens, context_length - len(request.prompt_token_ids))
