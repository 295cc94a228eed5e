"""Durable files: whole or not there, and never over another's."""

import os
from pathlib import Path

import pytest

from jobs.storage.durable import make_dirs, replace, sha256_of, write_exclusive


def test_a_file_is_published_once_and_then_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_exclusive(path, b"first")
    with pytest.raises(FileExistsError):
        write_exclusive(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    for publish in (write_exclusive, replace):
        with pytest.raises(OSError, match="No space left"):
            publish(tmp_path / "file", b"data")
        assert os.listdir(tmp_path) == []


def test_temporary_names_are_hidden_from_dataset_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[str] = []
    monkeypatch.setattr(os, "link", lambda source, target: linked.append(Path(source).name))
    write_exclusive(tmp_path / "part.parquet", b"")
    assert linked[0].startswith(".part.parquet.")


def test_replace_puts_the_new_file_in_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace(path, b"old")
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_make_dirs_flushes_the_directory_above_each_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr("jobs.storage.durable.fsync_dir", flushed.append)
    make_dirs(tmp_path / "a" / "b")
    assert set(flushed) == {tmp_path, tmp_path / "a"}
    make_dirs(tmp_path / "a" / "b")
    assert len(flushed) == 2


def test_sha256_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert sha256_of(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
