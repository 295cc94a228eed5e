"""The sizes of an engine that was given none: nothing is known of the rows then."""

from workers.engine.buckets import FINE_BUCKETS, Sizes
from workers.engine.planner.plan import ShapeNeeds, plan_shapes

# A masked cache position of a model of some billion weights, beside a padded prompt position.
_KV_WEIGHT = 0.002


def sizes_for(
    static_shapes: bool, context_length: int, batch_size: int, windows: tuple[int, ...], max_keys: int
) -> Sizes:
    """Fine steps, or planned sizes on a device where each shape is a compilation. Raises InvalidJob as plan_shapes."""
    if not static_shapes:
        return FINE_BUCKETS
    needs = ShapeNeeds((), context_length - 1, context_length, batch_size, windows, _KV_WEIGHT, max_keys)
    return plan_shapes(needs).borders
