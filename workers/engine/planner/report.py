"""A job's shapes as people and programs read them."""

from collections.abc import Sequence
from typing import Any

from workers.engine.buckets import GraphKey
from workers.engine.planner.job import JobShapes
from workers.engine.planner.memory import GRAPH_RESERVE


def report(shapes: JobShapes, device_bytes: int | None) -> dict[str, Any]:
    """For JSON.

    num_graph_keys: of the target; num_draft_graph_keys beside them. padding: of the positions that prefills compute,
    the share that is no prompt's; shares has it too, with empty slots and masked cache positions where every row
    generates all that it may. Rejected window positions show only in a run.
    """
    return {
        "num_graph_keys": len(shapes.keys),
        "num_draft_graph_keys": len(shapes.draft_keys),
        "padding": shapes.target.padding.shares()["padded_queries"],
        "shares": shapes.target.padding.shares(),
        "target": _sizes(shapes.keys),
        "draft": _sizes(shapes.draft_keys) if shapes.draft_keys else None,
        "draft_padding": shapes.draft and shapes.draft.padding.shares()["padded_queries"],
        "memory": _memory(shapes, device_bytes),
    }


def _sizes(keys: Sequence[GraphKey]) -> dict[str, Any]:
    prefills = sorted({(key.num_positions, key.num_rows) for key in keys if key.phase == "prefill"})
    decodes = [key for key in keys if key.phase == "decode"]
    return {
        "prefill": [{"num_rows": rows, "length": length} for length, rows in prefills],
        "num_slots": decodes[0].num_rows,
        "windows": sorted({key.num_positions for key in decodes}),
        "kv_lengths": sorted({key.kv_length for key in decodes}),
    }


def _memory(shapes: JobShapes, device_bytes: int | None) -> dict[str, Any]:
    memory = shapes.memory
    return {
        "batch_size": memory.batch_size,
        "kv_length": memory.kv_length,
        "weight_bytes": memory.weight_bytes,
        "cache_bytes": memory.cache_bytes,
        "logits_bytes": memory.logits_bytes,
        "total_bytes": memory.total_bytes,
        "graph_reserve": GRAPH_RESERVE,
        "device_bytes": device_bytes,
        "max_batch_size": None if device_bytes is None else memory.max_batch_size(device_bytes),
        "max_kv_length": None if device_bytes is None else memory.max_kv_length(device_bytes),
    }
