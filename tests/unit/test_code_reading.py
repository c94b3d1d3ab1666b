"""Code datasets of any size: every source is opened once a reading, every folder resolved once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.datasets.code_pairs import load_code_pairs
from runner.errors import DataError
from runner.tasks.code_collection import load_collection
from runner.tasks.pair_dataset import load_pairs
from runner.tasks.pair_inputs import share_inputs as share_pairs
from runner.tasks.retrieval import share_inputs as share_corpus
from tests.unit.code_files import write_collection, write_pairs


def many(count: int) -> dict[str, bytes]:
    """Sources of ten groups: an original each, and copies."""
    names = [f"g{n % 10}-{'orig' if n < 10 else f'L{n}'}" for n in range(count)]
    return {name: f"int {name.replace('-', '_')};\n".encode() for name in names}


class Calls:
    """How often sources were opened, and parts of paths looked at."""

    def __init__(self) -> None:
        self.sources = self.parts = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        opens, looks = os.open, os.lstat

        def counted_open(path: str | Path, flags: int, *more: int, **options: int) -> int:
            self.sources += str(path).endswith(".java")
            return opens(path, flags, *more, **options)

        def counted_look(path: str | Path, **options: int) -> os.stat_result:
            self.parts += 1
            return looks(path, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "open", counted_open)
            patch.setattr(os, "lstat", counted_look)
            yield


@pytest.mark.parametrize("task", ["pair", "retrieval"])
def test_work_grows_with_the_sources_and_no_faster(tmp_path: Path, task: str) -> None:
    parts = set()
    for count in (20, 200):
        folder = tmp_path / str(count) / "toy"
        sources = many(count)
        loading, sharing = Calls(), Calls()
        if task == "pair":
            names = [name for name in sources if "orig" not in name]
            rows = [(f"p{name}", f"{name[:2]}-orig", name, "1", name[:2]) for name in names]
            write_pairs(folder, rows, sources)
            with loading.counted():
                pairs = load_pairs("toy", {}, folder, folder)
            with sharing.counted():
                share_pairs(pairs, tmp_path / str(count))
            read_again = 0
            shared = count
        else:
            write_collection(folder, sources)
            with loading.counted():
                collection = load_collection("toy", {}, folder, folder)
            with sharing.counted():
                share_corpus(collection, tmp_path / str(count))
            read_again = len(collection.queries)  # their texts are kept, the documents' are not
            shared = collection.document_count
        assert (loading.sources, sharing.sources) == (count + read_again, shared)
        parts.add((loading.parts, sharing.parts))
    assert len(parts) == 1, "paths were resolved for every source anew"


def test_links_lead_anywhere_below_the_root_and_nowhere_else(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "root" / "toy")
    plain = load_code_pairs(folder, name="toy", root=tmp_path / "root").sources.by_id
    source, inside = folder / "sources" / "s1.java", tmp_path / "root" / "elsewhere"
    inside.mkdir()
    source.rename(inside / "s1.java")
    source.symlink_to(inside / "s1.java")
    assert load_code_pairs(folder, name="toy", root=tmp_path / "root").sources.by_id == plain
    source.unlink()
    (inside / "s1.java").rename(source)
    (folder / "sources").rename(inside / "sources")
    (folder / "sources").symlink_to(inside / "sources")
    assert load_code_pairs(folder, name="toy", root=tmp_path / "root").sources.by_id == plain
    (folder / "sources").unlink()
    (inside / "sources").rename(tmp_path / "outside")
    (folder / "sources").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError) as caught:
        load_code_pairs(folder, name="toy", root=tmp_path / "root")
    assert caught.value.code == "data.outside-root"


def test_a_fifo_in_place_of_a_source_does_not_block(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "toy")
    (folder / "sources" / "s1.java").unlink()
    os.mkfifo(folder / "sources" / "s1.java")
    with pytest.raises(DataError) as caught:
        load_code_pairs(folder, name="toy", root=folder)
    assert caught.value.code == "data.not-a-file"
