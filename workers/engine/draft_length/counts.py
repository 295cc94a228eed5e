"""Running counts of trials: by position of a guess, and of one row against what was expected of it."""

from collections.abc import Sequence


class PositionCounts:
    """Trials and hits at each position of a guess, given that all positions before were hits.

    Conditional rates by position, since they rise in copied text and fall with a model's drafts; a mean over positions
    is neither. Old trials are discounted; the totals are not.
    """

    def __init__(self, num_positions: int, discount: float) -> None:
        self._discount = discount
        self.trials = [0.0] * num_positions
        self.hits = [0.0] * num_positions
        self.total_trials = [0] * num_positions
        self.total_hits = [0] * num_positions

    def add(self, first: int, num_hits: int, is_miss: bool) -> None:
        """num_hits positions from first were hits, and the next a miss if is_miss."""
        for position in range(first, first + num_hits + is_miss):
            is_hit = position < first + num_hits
            self.trials[position] = self.trials[position] * self._discount + 1
            self.hits[position] = self.hits[position] * self._discount + is_hit
            self.total_trials[position] += 1
            self.total_hits[position] += is_hit

    def fade(self, first: int, max_trials: float) -> None:
        """From position first on, what is known counts as no more than max_trials."""
        for position in range(first, len(self.trials)):
            if self.trials[position] > max_trials:
                self.hits[position] *= max_trials / self.trials[position]
                self.trials[position] = max_trials

    def rates(self, priors: Sequence[float], prior_trials: float) -> list[float]:
        """The mean of a beta distribution at each position; priors: its mean before any trial."""
        columns = zip(self.hits, self.trials, priors, strict=True)
        return [(hits + prior_trials * prior) / (trials + prior_trials) for hits, trials, prior in columns]

    def chained_rates(self, first_prior: float, prior_trials: float) -> list[float]:
        """The same, where the prior of a position is the rate of the position before."""
        rates, prior = [], first_prior
        for hits, trials in zip(self.hits, self.trials, strict=True):
            prior = (hits + prior_trials * prior) / (trials + prior_trials)
            rates.append(prior)
        return rates


class RowOdds:
    """How much better or worse one row's drafts do than was expected of them, as a factor on the odds.

    On the odds, so that a row with sure and unsure guesses is not taken for a mixture of both.
    """

    def __init__(self, discount: float, prior_trials: float) -> None:
        self._discount, self._prior = discount, prior_trials
        self._hits = self._misses = self._expected_hits = self._expected_misses = 0.0
        self.factor = 1.0

    def add(self, expected: Sequence[float], num_hits: int) -> None:
        """Trials with these rates, the first num_hits of them hits."""
        for index, rate in enumerate(expected):
            is_hit = index < num_hits
            self._hits = self._hits * self._discount + is_hit
            self._misses = self._misses * self._discount + (not is_hit)
            self._expected_hits = self._expected_hits * self._discount + rate
            self._expected_misses = self._expected_misses * self._discount + 1 - rate
        odds = (self._hits + self._prior) / (self._misses + self._prior)
        self.factor = odds * (self._expected_misses + self._prior) / (self._expected_hits + self._prior)
