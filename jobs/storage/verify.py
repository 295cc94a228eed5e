"""Verify: a job's output read again, every byte of it, against its plan, its receipts and its input."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.input.files import SUFFIXES
from jobs.input.sources import InputChanged, InputGone, open_planned
from jobs.storage.durable import sha256_of
from jobs.storage.finish import make_manifest, read_manifest
from jobs.storage.gc import visible_files
from jobs.storage.layout import Layout
from jobs.storage.problems import Problem
from jobs.storage.receipts import newest_generations, read_receipt
from jobs.storage.records import read_record
from jobs.storage.verify_input import InputCursor
from jobs.storage.verify_part import part_problems
from schemas.errors import InvalidJob, SpecbatchError
from schemas.job import JobSpec
from schemas.plan import InputFile, Plan, ShardPlan
from schemas.receipt import Manifest, Receipt


@dataclass(slots=True)
class Verification:
    """One reading of all that is committed; nothing is changed. What is not committed yet is no problem.

    with_input: whether the input has to be there still, unchanged, with the values that the parts carry.
    receipts: shard_index -> its newest one where it is the plan's; filled while `problems` runs.
    """

    layout: Layout
    plan: Plan
    with_input: bool = True
    receipts: dict[int, Receipt] = field(default_factory=dict)
    _changed: list[InputFile] = field(default_factory=list)

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong. Parts are read once and in order, in batches, and the input beside them."""
        # What a running job may yet add is looked at first: it adds a part after its receipt, _SUCCESS after them all.
        visible, had_success = sorted(visible_files(self.layout)), self.layout.success_path.exists()
        yield from self._receipt_problems()
        yield from self._record_problems(had_success)
        yield from _foreign_problems(self.layout, visible, self.receipts)
        if self.with_input:
            yield from self._input_problems()
        cursor = InputCursor(self.plan)
        for shard in self.plan.shards:
            if shard.shard_index in self.receipts:
                is_compared = self.with_input and not any(_overlap(file, shard) for file in self._changed)
                receipt = self.receipts[shard.shard_index]
                yield from _part_problems(self.layout, self.plan, shard, receipt, cursor if is_compared else None)

    def _receipt_problems(self) -> Iterator[Problem]:
        for path, shard_index in _newest_receipts(self.layout):
            try:
                receipt = read_receipt(path)
            except InvalidJob as error:
                yield Problem("receipt_damaged", path, str(error))
                continue
            if receipt is None:
                yield Problem("receipt_damaged", path, "it was removed while it was looked for")
            elif complaint := _receipt_complaint(self.layout, self.plan, path, receipt):
                yield Problem("receipt_foreign", path, complaint)
            else:
                self.receipts[shard_index] = receipt

    def _record_problems(self, had_success: bool) -> Iterator[Problem]:
        """The spec's copy, the manifest and _SUCCESS."""
        layout, plan = self.layout, self.plan
        is_complete = len(self.receipts) == len(plan.shards)
        has_success = had_success and layout.success_path.exists()
        if has_success and not is_complete:
            yield Problem("success_early", layout.success_path, "it is there, and not every shard has its receipt")
        try:
            spec, manifest = read_record(JobSpec, layout.spec_path), read_manifest(layout)
        except InvalidJob as error:
            yield Problem("record_damaged", layout.output, str(error))
            return
        if spec is not None and spec.digest() != plan.spec.digest():
            yield Problem("spec_differs", layout.spec_path, "it is not the spec of the plan")
        if has_success and is_complete:
            expected = make_manifest(plan, [self.receipts[shard.shard_index] for shard in plan.shards])
            if complaint := _manifest_complaint(manifest, expected):
                yield Problem("manifest_differs", layout.manifest_path, complaint)

    def _input_problems(self) -> Iterator[Problem]:
        for file in self.plan.files:
            try:
                with open_planned(file):
                    continue
            except InputGone as error:
                kind, detail = "input_gone", f"{error}, or verify with --without-input"
            except InputChanged as error:
                kind, detail = "input_changed", str(error)
            except SpecbatchError as error:
                kind, detail = "input_unreadable", str(error)
            self._changed.append(file)
            yield Problem(kind, Path(file.path), detail)


def _newest_receipts(layout: Layout) -> Iterator[tuple[Path, int]]:
    """Nothing where their directory is gone: that is told as rows that are missing."""
    newest = newest_generations(layout) if layout.receipts_dir.is_dir() else {}
    for shard_index, generation in sorted(newest.items()):
        yield layout.receipt_path(shard_index, generation), shard_index


def _receipt_complaint(layout: Layout, plan: Plan, path: Path, receipt: Receipt) -> str | None:
    """Why it is none that the plan and its own name allow."""
    if receipt.shard_index >= len(plan.shards):
        return f"the plan has no shard {receipt.shard_index}"
    shard = plan.shards[receipt.shard_index]
    expected = {
        "job_id": plan.job_id,
        "part": layout.part_name(shard),
        "first_row": shard.first_row,
        "num_rows": shard.num_rows,
        "num_samples": receipt.num_ok + receipt.num_failed,
    }
    if layout.receipt_path(receipt.shard_index, receipt.generation) != path:
        return f"it is that of shard {receipt.shard_index}, generation {receipt.generation}"
    wrong = [name for name, value in expected.items() if getattr(receipt, name) != value]
    return f"its {wrong[0]} is {getattr(receipt, wrong[0])!r}, not {expected[wrong[0]]!r}" if wrong else None


def _manifest_complaint(manifest: Manifest | None, expected: Manifest) -> str | None:
    if manifest is None:
        return "it is gone, and _SUCCESS is there"
    wrong = [name for name in Manifest.model_fields if getattr(manifest, name) != getattr(expected, name)]
    return f"its {wrong[0]} is not that of the receipts" if wrong else None


def _foreign_problems(layout: Layout, visible: Sequence[Path], receipts: Mapping[int, Receipt]) -> Iterator[Problem]:
    """Parquet files that dataset readers would take for parts."""
    parts = {layout.output / receipt.part: receipt for receipt in receipts.values()}
    for path in visible:
        if path not in parts and path.name.lower().endswith(SUFFIXES):
            twin = _twin(path, parts.values())
            if twin is not None:
                yield Problem("part_doubled", path, f"it holds the same rows as {twin.part}")
            else:
                yield Problem("part_foreign", path, "no receipt names it, and dataset readers take it for a part")


def _twin(path: Path, receipts: Iterable[Receipt]) -> Receipt | None:
    """The receipt that the file's bytes are of."""
    as_large = [receipt for receipt in receipts if receipt.size_bytes == path.stat().st_size]
    sha256 = sha256_of(path) if as_large else None
    return next((receipt for receipt in as_large if receipt.sha256 == sha256), None)


def _overlap(file: InputFile, shard: ShardPlan) -> bool:
    return file.first_row < shard.end_row and shard.first_row < file.first_row + file.num_rows


def _part_problems(
    layout: Layout, plan: Plan, shard: ShardPlan, receipt: Receipt, cursor: InputCursor | None
) -> Iterator[Problem]:
    """Of the part where it is: a process that died right after the commit has left it staged."""
    staged, part = layout.staged_dir / receipt.staged, layout.output / receipt.part
    problems: list[Problem] = []
    if staged.exists():
        detail = f"it is committed, but still {staged.name} among the staged; jobctl reconcile puts it in place"
        problems = [Problem("part_staged", part, detail), *part_problems(staged, plan, shard, receipt, cursor)]
    if not staged.exists():  # or not any more
        problems = list(part_problems(part, plan, shard, receipt, cursor))
    newer = read_receipt(layout.receipt_path(shard.shard_index, receipt.generation + 1)) if problems else None
    if newer is not None:  # a retry has just replaced it
        yield from _part_problems(layout, plan, shard, newer, cursor)
    else:
        yield from problems
