"""Top-p without sorting the vocabulary: a radix selection by mass, in two passes over the bits of a probability.

Floats that are not negative are ordered as their bits are. Those of a probability fit 30 bits, so two histograms of
2**15 bins, each weighed by probability, lead to the very value at which the mass is reached: on shapes that do not
depend on the data, and at a quarter of what a sort costs (Holtzman et al. 2020, arXiv 1904.09751, for top-p itself).
"""

import torch
from torch import Tensor

_BITS = 15
_LAST_BIN = (1 << _BITS) - 1


def nucleus_threshold(probs: Tensor, top_p: Tensor) -> Tensor:
    """The smallest probability in the smallest set of most probable tokens with a mass of at least top_p.

    probs: (B, T, V) float32. top_p: (B,), where 1 gives 0. Returns (B, T, 1). Tokens tied at the threshold all count
    as in, so that the set does not depend on the order of the vocabulary.
    """
    needed = torch.where(top_p < 1, top_p, torch.inf)[:, None, None]
    # Bins count down from probability 1, so that a running sum comes to the most probable tokens first.
    bits = probs.view(torch.int32).bitwise_not()
    high = (bits >> _BITS).bitwise_and_(_LAST_BIN)
    first_bin, above = _reach(high, probs, needed)
    inside = torch.where(high == first_bin, probs, 0.0)
    second_bin, _ = _reach(bits & _LAST_BIN, inside, needed - above)
    threshold = ((_LAST_BIN - first_bin) << _BITS) | (_LAST_BIN - second_bin)
    return threshold.view(torch.float32)


def _reach(bins: Tensor, mass: Tensor, needed: Tensor) -> tuple[Tensor, Tensor]:
    """The first bin with which the mass reaches what is needed, or the last bin; and the mass before it: (B, T, 1)."""
    histogram = mass.new_zeros(*mass.shape[:-1], _LAST_BIN + 1).scatter_add_(-1, bins.long(), mass)
    upto = histogram.cumsum(-1)
    reached = (upto < needed).sum(-1, keepdim=True).clamp_(max=_LAST_BIN)
    before = upto.gather(-1, (reached - 1).clamp_(min=0))
    return reached.to(torch.int32), torch.where(reached > 0, before, 0.0)
