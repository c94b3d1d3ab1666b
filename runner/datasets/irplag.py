"""IR-Plag as its authors publish it -> the tables and sources that ``irplag-v1`` was frozen from.

The unpacked archive has ``case-NN/original/``, ``case-NN/plagiarized/LN/NN/`` (level and number)
and ``case-NN/non-plagiarized/NN/``, one Java file in each. Dataset: Karnalim, Budi, Toba, Joy,
https://github.com/oscarkarnalim/sourcecodeplagiarismdataset. What comes out is a function of the
files alone: the same tables byte for byte, whoever makes them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.datasets.code_sources import MAX_SOURCE_BYTES
from runner.datasets.lines import open_inside, refuse
from runner.datasets.placing import placed

_CASE = re.compile(r"case-[0-9]{2}\Z")
_LEVEL, _NUMBER = re.compile(r"L[0-9]\Z"), re.compile(r"[0-9]{2}\Z")
_FIX = "give the unpacked folder of the published archive that holds case-01/"
_NOT_PLAGIARISED = "NP"


class _Program(NamedTuple):
    ident: str
    case: str
    level: str  # "" for an original
    source: str  # path below the published folder
    data: bytes


def convert_irplag(published: Path, root: Path) -> Path:
    """Write ``root/irplag/`` with ``pair/`` and ``retrieval/``, and return it.

    Raises ``DataError`` for a folder of another form and for an ``irplag/`` that is there already.
    """
    programs = sorted(_programs(published))
    target = root / "irplag"
    with placed(target) as folder:
        for part, tables in (("pair", _pair(programs)), ("retrieval", _retrieval(programs))):
            (folder / part / "sources").mkdir(parents=True)
            tables["files.csv"] = _files(programs)
            for name, rows in tables.items():
                text = "".join(",".join(row) + "\n" for row in rows)
                (folder / part / name).write_text(text, encoding="utf-8", newline="")
            for program in programs:
                (folder / part / _path(program)).write_bytes(program.data)
    return target


def _programs(published: Path) -> Iterator[_Program]:
    cases = _folders(published, _CASE)
    if not cases:
        refuse("data.missing", "no case-01/, case-02/, ... in it", fix=_FIX, path=published)
    for case in cases:
        yield _program(published, case / "original", f"{case.name}-orig", "")
        for level in _folders(case / "plagiarized", _LEVEL):
            for one in _folders(level, _NUMBER):
                ident = f"{case.name}-{level.name}-{one.name}"
                yield _program(published, one, ident, level.name)
        for one in _folders(case / "non-plagiarized", _NUMBER):
            yield _program(published, one, f"{case.name}-np-{one.name}", _NOT_PLAGIARISED)


def _folders(parent: Path, name: re.Pattern[str]) -> list[Path]:
    found = sorted(parent.iterdir()) if parent.is_dir() else []
    return [folder for folder in found if name.match(folder.name) and folder.is_dir()]


def _program(published: Path, folder: Path, ident: str, level: str) -> _Program:
    found = [path for path in sorted(folder.glob("*.java")) if not path.name.startswith(".")]
    if len(found) != 1:
        message = f"{len(found)} Java files where one was published"
        refuse("data.irplag-layout", message, fix=_FIX, path=folder)
    with open_inside(found[0], published, fix=_FIX) as stream:
        data = stream.read(MAX_SOURCE_BYTES + 1)
    if len(data) > MAX_SOURCE_BYTES or not data.isascii():
        refuse("data.irplag-layout", "no small ASCII file as published", fix=_FIX, path=found[0])
    source = found[0].relative_to(published).as_posix()
    if not re.fullmatch(r"[A-Za-z0-9._/-]+", source):
        refuse("data.irplag-layout", "no plain file name as published", fix=_FIX, path=found[0])
    return _Program(ident, ident[:7], level, source, data)


def _path(program: _Program) -> str:
    return f"sources/{program.ident}.java"


def _files(programs: Sequence[_Program]) -> list[tuple[str, ...]]:
    head = "id,path,language,group,source_path,bytes,sha256,encoding,eol"
    rows: list[tuple[str, ...]] = [tuple(head.split(","))]
    for one in programs:
        digest = hashlib.sha256(one.data).hexdigest()
        end = "crlf" if b"\r\n" in one.data else "lf"
        size = str(len(one.data))
        rows.append(
            (one.ident, _path(one), "java", one.case, one.source, size, digest, "ascii", end)
        )
    return rows


def _judged(programs: Sequence[_Program]) -> Iterator[tuple[_Program, str]]:
    """Yield every program but the originals, with its label."""
    for one in programs:
        if one.level:
            yield one, "0" if one.level == _NOT_PLAGIARISED else "1"


def _pair(programs: Sequence[_Program]) -> dict[str, list[tuple[str, ...]]]:
    rows: list[tuple[str, ...]] = [("pair_id", "left_id", "right_id", "label", "group", "level")]
    for number, (one, label) in enumerate(_judged(programs), 1):
        rows.append(
            (f"p{number:04}", f"{one.case}-orig", one.ident, label, one.case, one.level)
        )  # fmt: skip
    return {"pairs.csv": rows}


def _retrieval(programs: Sequence[_Program]) -> dict[str, list[tuple[str, ...]]]:
    originals = [one for one in programs if not one.level]
    judged = list(_judged(programs))
    return {
        "corpus.csv": [
            ("document_id", "file_id", "group"),
            *((one.ident, one.ident, one.case) for one, _ in judged),
        ],
        "queries.csv": [
            ("query_id", "file_id", "group"),
            *((f"q-{one.case}", one.ident, one.case) for one in originals),
        ],
        "qrels.csv": [
            ("query_id", "document_id", "relevance"),
            *((f"q-{one.case}", one.ident, label) for one, label in judged),
        ],
    }
