"""The variables of a Gaudi card, which have to be set before torch is imported."""

import os
from typing import Any
from unittest import mock

import pytest

import workers.__main__ as entry
from schemas.errors import InvalidJob
from workers.devices.environment import hpu_mode, prepare_environment


def prepared(**environ: str) -> dict[str, str]:
    prepare_environment(environ)
    return environ


def test_every_variable_is_set_where_none_was() -> None:
    assert prepared() == {
        "PT_HPU_LAZY_MODE": "1",
        "PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "1",
        "PT_HPU_WEIGHT_SHARING": "0",
        "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0",
    }


@pytest.mark.parametrize(("value", "mode"), [("1", "lazy"), ("0", "eager")])
def test_the_mode_is_the_users(value: str, mode: str) -> None:
    environ = prepared(PT_HPU_LAZY_MODE=value)
    assert environ["PT_HPU_LAZY_MODE"] == value
    assert hpu_mode(environ) == mode


def test_what_would_overrule_the_graphs_is_overruled() -> None:
    assert prepared(PT_HPUGRAPH_DISABLE_TENSOR_CACHE="0")["PT_HPUGRAPH_DISABLE_TENSOR_CACHE"] == "1"


@pytest.mark.parametrize("value", ["2", "", "lazy"])
def test_a_mode_that_there_is_not_is_refused(value: str) -> None:
    with pytest.raises(InvalidJob, match=f"PT_HPU_LAZY_MODE is {value}; set it to 1 .* or 0"):
        prepared(PT_HPU_LAZY_MODE=value)


def test_a_process_pinned_to_a_card_sees_no_other() -> None:
    assert prepared(HLS_MODULE_ID="5")["HABANA_VISIBLE_MODULES"] == "5"
    assert prepared(HLS_MODULE_ID="5", HABANA_VISIBLE_MODULES="5")["HABANA_VISIBLE_MODULES"] == "5"
    assert "HABANA_VISIBLE_MODULES" not in prepared()


def test_two_pins_that_differ_are_refused() -> None:
    with pytest.raises(InvalidJob, match="HLS_MODULE_ID is 5 and HABANA_VISIBLE_MODULES is 5,6"):
        prepared(HLS_MODULE_ID="5", HABANA_VISIBLE_MODULES="5,6")


def test_a_worker_prepares_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def run_node(*_: Any) -> int:
        seen.append(os.environ.get("PT_HPU_LAZY_MODE"))
        return 0

    monkeypatch.setattr(entry, "run_node", run_node)
    with mock.patch.dict(os.environ):
        os.environ.pop("PT_HPU_LAZY_MODE", None)
        assert entry.main(["--device", "cpu", "--session", "tests.toy:load_toy"]) == 0
    assert seen == ["1"]
