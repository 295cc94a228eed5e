"""The parts' schema: carried columns first, then ours, and no name twice."""

import pyarrow as pa
import pytest

from schemas.columns import RESULT_FIELDS, part_schema, result_fields
from schemas.errors import InvalidJob


def test_token_ids_are_a_column_only_where_they_are_asked_for() -> None:
    assert "completion_token_ids" in [f.name for f in result_fields(save_token_ids=True)]
    assert "completion_token_ids" not in [f.name for f in result_fields(save_token_ids=False)]


def test_carried_columns_come_first_and_keep_their_types() -> None:
    carried = pa.schema([("id", pa.large_string()), ("score", pa.float16())])
    schema = part_schema(carried, save_token_ids=True)
    assert schema.names == ["id", "score", *(f.name for f in RESULT_FIELDS)]
    assert schema.field("id").type == pa.large_string()


def test_a_clash_is_refused_and_a_prefix_is_the_way_out() -> None:
    carried = pa.schema([("status", pa.string())])
    with pytest.raises(InvalidJob, match=r"'status'.*--output-prefix"):
        part_schema(carried, save_token_ids=False)
    assert "gen_status" in part_schema(carried, save_token_ids=False, prefix="gen_").names
