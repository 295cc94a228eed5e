"""vllm-gaudi's three ways to choose sizes, after their description in its documentation (docs.vllm.ai, Bucketing).

Written anew for lengths of one prompt at a time, as the sizes that padding depends on; its shapes are products of these
with numbers of context blocks.
"""

import math

STEP = 128  # its block size, and the step and the smallest of its prompt lengths
PAD_PERCENT = 25  # its default; the other limit of `pad` is a quarter of the longest


def linear(longest: int) -> list[int]:
    """`lin`: powers of two up to the step, then steps; prompts begin at the step."""
    return list(range(STEP, longest + 1, STEP))


def exponential(longest: int) -> list[int]:
    """`exp`: ceil(log2(longest)) + 1 points in equal ratios from the step on, each rounded up to a step."""
    num_points = math.ceil(math.log2(longest)) + 1
    ratio = (longest / STEP) ** (1 / (num_points - 1))
    return sorted({math.ceil(ratio**point) * STEP for point in range(num_points - 1)} | {longest})


def padded(longest: int) -> list[int]:
    """`pad`: of the linear ones, those are left out that keep padding within a share and an absolute limit."""
    kept: list[int] = []
    sizes = linear(longest)
    last = 0  # the largest length that goes to the size before
    for size, following in zip(sizes, [*sizes[1:], None], strict=True):
        gap = None if following is None else following - last - 1
        if following is None or gap > following * PAD_PERCENT / 100 or gap > longest / 4:
            kept.append(size)
            last = size
    return kept


STRATEGIES = {"lin": linear, "exp": exponential, "pad": padded}
