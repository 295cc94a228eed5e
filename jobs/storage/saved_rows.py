"""Finished rows of a shard that is not committed, as its part will have them."""

import pyarrow as pa

from jobs.input.rows import read_rows
from jobs.input.schema import decode_schema
from jobs.storage.checkpoint import read_finished
from jobs.storage.layout import Layout
from jobs.storage.result_columns import result_arrays
from schemas.columns import part_schema
from schemas.plan import Plan, ShardPlan


def saved_rows(layout: Layout, plan: Plan, shard: ShardPlan) -> pa.Table:
    """One row for each saved sample, in order: the carried columns, then the results.

    Raises InvalidJob where an input file is not as it was planned, ShardRetryable where it cannot be read.
    """
    schema = part_schema(decode_schema(plan.arrow_schema), plan.spec.save_token_ids, plan.spec.output_prefix)
    saved = read_finished(layout, shard)
    if not saved:
        return schema.empty_table()
    outcomes = [saved[key] for key in sorted(saved)]
    carried = pa.Table.from_batches(rows.values for rows in read_rows(plan, range(shard.first_row, shard.end_row)))
    # Not `take`: Arrow has none for some types.
    kept = pa.concat_tables(carried.slice(outcome.row_index - shard.first_row, 1) for outcome in outcomes)
    return pa.Table.from_arrays([*kept.columns, *result_arrays(plan.spec, outcomes)], schema=schema).combine_chunks()
