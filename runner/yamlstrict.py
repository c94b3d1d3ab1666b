"""Strict YAML -> plain JSON values and the place of every one of them.

Only the part of YAML that all readers agree on: mappings with text keys, sequences, quoted text,
and the plain scalars of ``yamlscalars``. No anchors (so no alias bombs), tags, merge keys,
directives, second documents, duplicate keys, tabs or control characters. PyYAML's scanner and
parser give the events; its constructors never run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import yaml
from yaml.events import (
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from runner.canonical import Json
from runner.errors import ManifestError, Where
from runner.schema_faults import json_path
from runner.yamlscalars import ScalarFault, read_plain

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_VALUES = 50_000  # about a second of parsing
MAX_FAULTS = 100


class _Mark(Protocol):
    """The part of PyYAML's marks that we read; its two parsers have a class each."""

    line: int
    column: int


JsonPath = tuple[str | int, ...]

#: What may stand in the file: line breaks, printable characters, no byte-order mark, and none of
#: NEL, LS and PS, which are line breaks to YAML 1.1 but not to an editor's line count.
_REFUSED = re.compile(
    "[^\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_AS_ESCAPE = 'delete it, or write it as an escape inside "double quotes"'
#: What a decoded text may not hold although an escape such as ``"\0"`` can write it.
_REFUSED_IN_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Places:
    """1-based (line, column) of every key and value of one file, by JSON path."""

    __slots__ = ("_keys", "_values", "file")

    def __init__(self, file: str) -> None:
        self.file = file
        self._values: dict[JsonPath, tuple[int, int]] = {}
        self._keys: dict[JsonPath, tuple[int, int]] = {}

    def note_value(self, path: JsonPath, event: Event) -> None:
        self._values[path] = _position(event)

    def note_key(self, path: JsonPath, event: Event) -> None:
        self._keys[path] = _position(event)

    def where(self, *path: str | int) -> Where:
        """Return the place of a value, or of its nearest ancestor when it is not there."""
        return self._find(self._values, path)

    def where_key(self, *path: str | int) -> Where:
        """Return the place of a mapping's key; of the value when ``path`` is no mapping entry."""
        return self._find(self._keys if path in self._keys else self._values, path)

    def _find(self, table: dict[JsonPath, tuple[int, int]], path: JsonPath) -> Where:
        known = path
        while known and known not in table:
            known = known[:-1]
        line, column = table.get(known, (1, 1))
        return Where(file=self.file, line=line, column=column, json_path=json_path(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """The values of a file, their places, and the faults that did not stop the reading.

    Where there are faults the values are not to be used for anything but finding more of them.
    """

    data: Json
    places: Places
    faults: tuple[ManifestError, ...] = field(default=())


def read_yaml(raw: bytes, file: str) -> YamlDocument:
    """Return the one document of ``raw`` with its faults: at most 100, in file order.

    Raises ``ManifestError`` where no value can be made: not UTF-8, not YAML, too large, empty.
    """
    return _Builder(_decode(raw, file), file).document()


def _decode(raw: bytes, file: str) -> str:
    if len(raw) > MAX_BYTES:
        raise ManifestError(
            "manifest.too-large",
            f"the file has {len(raw)} bytes; a manifest has at most {MAX_BYTES}",
            fix="give the manifest itself; data belongs elsewhere",
            where=Where(file=file),
        )
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ManifestError(
            "manifest.not-utf8",
            "the file is UTF-16",
            fix="save it as UTF-8",
            where=Where(file=file, line=1, column=1),
        )
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        raise ManifestError(
            "manifest.not-utf8",
            f"byte 0x{raw[error.start]:02x} is not UTF-8",
            fix="save the file as UTF-8",
            where=_where_in(before, len(before), file),
        ) from error
    if found := _REFUSED.search(text):
        raise _bad_character(found.group(), _where_in(text, found.start(), file))
    return text


def _where_in(text: str, index: int, file: str) -> Where:
    lines = re.split("\r\n|\r|\n", text[:index])
    return Where(file=file, line=len(lines), column=len(lines[-1]) + 1)


def _bad_character(character: str, where: Where) -> ManifestError:
    if character == "\t":
        return ManifestError(
            "manifest.tab",
            "there is a tab; YAML readers disagree on what one means",
            fix='use spaces; inside "double quotes" write \\t',
            where=where,
        )
    if "\ud800" <= character <= "\udfff":
        return ManifestError(
            "manifest.half-character",
            f"the escape U+{ord(character):04X} is half a character",
            fix="write the character itself, or all of it as \\UXXXXXXXX",
            where=where,
        )
    return ManifestError(
        "manifest.control-character",
        f"there is the invisible character U+{ord(character):04X}",
        fix="delete it" if _REFUSED_IN_TEXT.match(character) else _AS_ESCAPE,
        where=where,
    )


class _Events(yaml.SafeLoader):
    """PyYAML's event reader that stops at the syntax which we refuse, where it stands."""

    def fetch_directive(self) -> NoReturn:
        self._refuse("directive", "a % directive", "delete the line")

    def fetch_alias(self) -> NoReturn:
        self._refuse("alias", "an alias (*name)", "write the value out; quote a text with *")

    def fetch_anchor(self) -> NoReturn:
        self._refuse("anchor", "an anchor (&name)", "write the value out; quote a text with &")

    def fetch_tag(self) -> NoReturn:
        self._refuse("tag", "a tag (!name)", "delete the tag; quote a text that begins with !")

    def _refuse(self, code: str, what: str, fix: str) -> NoReturn:
        line, column = _marked(self.get_mark())
        raise ManifestError(
            f"manifest.{code}",
            f"there is {what}; manifests are plain values",
            fix=fix,
            where=Where(line=line, column=column),
        )


class _Builder:
    """Turns the events of one text into values; depth and number of values are bounded."""

    def __init__(self, text: str, file: str) -> None:
        self._places = Places(file)
        self._faults: list[ManifestError] = []
        self._count = 0
        self._file = file
        self._events = _Events(text)

    def document(self) -> YamlDocument:
        self._next()  # stream start
        if isinstance(self._next(), StreamEndEvent):
            self._fail("empty", "the file holds no value", "write the manifest", (1, 1))
        data = self._value(self._next(), ())
        self._next()  # document end
        if not isinstance(last := self._next(), StreamEndEvent):
            self._fail(
                "several-documents",
                "a second document begins here",
                "keep one document in a file: delete the line ---",
                _position(last),
            )
        return YamlDocument(data=data, places=self._places, faults=tuple(self._faults))

    def _next(self) -> Event:
        try:
            # PyYAML's stubs leave this method untyped.
            event: Event = self._events.get_event()  # type: ignore[no-untyped-call]
        except ManifestError as error:
            assert error.where is not None  # noqa: S101 - set by _Events itself
            position = (error.where.line or 1, error.where.column or 1)
            self._fail(error.code.removeprefix("manifest."), error.message, error.fix, position)
        except yaml.MarkedYAMLError as error:
            self._fail("syntax", *_explain(error))
        except (ValueError, OverflowError) as error:  # "\UFFFFFFFF" is no character
            self._fail(
                "syntax",
                f"an escape names no character: {error}",
                "use \\uXXXX or \\UXXXXXXXX up to 10FFFF",
                _marked(self._events.get_mark()),
            )
        return event

    def _value(self, event: Event, path: JsonPath) -> Json:
        self._count += 1
        if self._count > MAX_VALUES:
            message = f"there are more than {MAX_VALUES} values"
            self._fail("too-large", message, "data belongs elsewhere", _position(event))
        if len(path) > MAX_DEPTH:
            message = f"values nest more than {MAX_DEPTH} deep"
            self._fail("too-deep", message, "flatten the structure", _position(event))
        self._places.note_value(path, event)
        if isinstance(event, MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, SequenceStartEvent):
            items: list[Json] = []
            while not isinstance(item := self._next(), SequenceEndEvent):
                items.append(self._value(item, (*path, len(items))))
            return items
        return self._scalar(event)

    def _mapping(self, path: JsonPath) -> dict[str, Json]:
        values: dict[str, Json] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            key = self._key(event)
            if key in values:
                first = self._places.where_key(*path, key)
                self._fault(
                    "duplicate-key",
                    f"the key {key!r} is here a second time; first on line {first.line}",
                    "keep one of them",
                    event,
                )
                self._value(self._next(), (*path, key, 1))  # places of the first stay
                continue
            self._places.note_key((*path, key), event)
            values[key] = self._value(self._next(), (*path, key))
        return values

    def _key(self, event: Event) -> str:
        if not isinstance(event, ScalarEvent):
            message = "a mapping or sequence stands where a key is expected"
            self._fail("bad-key", message, "use text as key", _position(event))
        if event.style is None and event.value == "<<":
            message = "there is a merge key (<<)"
            self._fault("merge-key", message, "write the values out", event)
        key = self._scalar(event)
        if isinstance(key, str):
            return key
        self._fault("bad-key", f"the key {event.value} is not text", "quote the key", event)
        return str(event.value)

    def _scalar(self, event: Event) -> Json:
        assert isinstance(event, ScalarEvent)  # noqa: S101 - the parser has no other event here
        text: str = event.value
        if bad := _REFUSED_IN_TEXT.search(text):
            self._note(_bad_character(bad.group(), self._where(event)))
            return "?"
        if event.style is not None:
            return text
        value = read_plain(text)
        if isinstance(value, ScalarFault):
            self._fault(value.code, value.message, value.fix, event)
            return text
        return value

    def _fault(self, code: str, message: str, fix: str, event: Event) -> None:
        where = self._where(event)
        self._note(ManifestError(f"manifest.{code}", message, fix=fix, where=where))

    def _where(self, event: Event) -> Where:
        line, column = _position(event)
        return Where(file=self._file, line=line, column=column)

    def _note(self, error: ManifestError) -> None:
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(error)

    def _fail(self, code: str, message: str, fix: str, position: tuple[int, int]) -> NoReturn:
        where = Where(file=self._file, line=position[0], column=position[1])
        raise ManifestError(f"manifest.{code}", message, fix=fix, where=where)


def _position(event: Event) -> tuple[int, int]:
    return _marked(event.start_mark)


def _marked(mark: _Mark | None) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


#: PyYAML's words for what people do most -> what to do about it.
_SYNTAX_FIXES = (
    (
        "mapping values are not allowed",
        'indent the line like its neighbours, or quote text with ": "',
    ),
    ("could not find expected ':'", "write a space after the colon, and a space after a dash"),
    ("expected ',' or ']'", "close the list with ] or separate its items with commas"),
    ("expected ',' or '}'", "close the mapping with } or separate its entries with commas"),
    ("expected <block end>", "indent the line like its neighbours"),
    ("unexpected end of stream", "close the quotation mark"),
    ("cannot start any token", 'quote a text that begins with one of % @ ` "'),
    ("escape", "use single quotes for text with backslashes"),
)


def _explain(error: yaml.MarkedYAMLError) -> tuple[str, str, tuple[int, int]]:
    problem = error.problem or "malformed"
    context = f"{error.context}: " if error.context else ""
    fix = next((fix for words, fix in _SYNTAX_FIXES if words in problem), "correct the YAML syntax")
    position = _marked(error.problem_mark or error.context_mark)
    return f"not YAML: {context}{problem}", fix, position
