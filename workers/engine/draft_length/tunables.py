"""The constants of the draft-length controller, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tunables:
    """Trials are single drafted tokens that a target has judged; a discount of d remembers about 1 / (1 - d) of them.

    first_acceptance: what a source is expected to reach before anything is known, counted as prior_trials.
    kind_prior_trials: how long a kind of guess is taken to be like the source's others.
    discount, row_discount: for each trial, of a source or kind, and of a row.
    row_prior_trials: how long a row is taken to be like the others.
    draft_worth: of a free source's token that is accepted, in tokens of plain steps: what is left of a copy can be had
        in the next round too, when more rows may be copying; a token that cannot be drafted needs a step of its own.
    tail_power: how much less rows count that end sooner, when no other rows wait.
    margin: another k must promise this much more to be taken.
    explore_share: of all time, the most that trying another k than the best may lose; explore_credit: in plain steps,
        what may be lost before that.
    min_interval, max_interval: rounds for which a neighbouring k stays untried; doubled each time it changed nothing.
    faded_trials: what old evidence about untried positions counts when they are tried again.
    """

    first_acceptance: float = 0.5
    prior_trials: float = 2.0
    kind_prior_trials: float = 4.0
    discount: float = 0.99
    row_discount: float = 0.95
    row_prior_trials: float = 3.0
    draft_worth: float = 0.75
    tail_power: float = 8.0
    margin: float = 0.05
    explore_share: float = 0.01
    explore_credit: float = 2.0
    min_interval: int = 8
    max_interval: int = 64
    faded_trials: float = 8.0
