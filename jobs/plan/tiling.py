"""Tiling: files' rows cut into shards."""

from collections.abc import Iterator, Sequence

from schemas.plan import InputFile, ShardPlan


def plan_shards(files: Sequence[InputFile], shard_rows: int) -> tuple[ShardPlan, ...]:
    """Tiles the files' rows exactly once, in order, with at most `shard_rows` rows a shard.

    No shard crosses a Hive directory. Without rows there is one empty shard, so that a finished job has a
    part with all its columns.
    """
    runs = list(_runs(files))
    filled = [run for run in runs if run.num_rows] or runs[:1]
    pieces = [piece for run in filled for piece in _pieces(run, shard_rows)]
    return tuple(piece.model_copy(update={"shard_index": shard_index}) for shard_index, piece in enumerate(pieces))


def count_shards(files: Sequence[InputFile], shard_rows: int) -> int:
    """How many shards the files' rows make, without making them."""
    return max(1, sum(-(-run.num_rows // shard_rows) for run in _runs(files)))


def _runs(files: Sequence[InputFile]) -> Iterator[ShardPlan]:
    """Rows that lie together in one Hive directory, over all its files."""
    run: ShardPlan | None = None
    for file in files:
        if run is not None and run.partition == file.partition:
            run = run.model_copy(update={"num_rows": run.num_rows + file.num_rows})
            continue
        if run is not None:
            yield run
        run = ShardPlan(shard_index=0, first_row=file.first_row, num_rows=file.num_rows, partition=file.partition)
    if run is not None:
        yield run


def _pieces(run: ShardPlan, shard_rows: int) -> Iterator[ShardPlan]:
    for first_row in range(run.first_row, max(run.end_row, run.first_row + 1), shard_rows):
        num_rows = min(shard_rows, run.end_row - first_row)
        yield run.model_copy(update={"first_row": first_row, "num_rows": num_rows})
