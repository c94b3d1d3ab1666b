"""Judgments from the score files of a bundle: what was retrieved, and how much there was to find.

A score file has the relevance of every document that it ranks; the per-query file beside it says
how many documents were judged and how many are relevant. Relevant documents that no method
retrieved stand here as documents without a name, which no row can have. Their grades are unknown
(1 at least), and so is what stands below the cut of a ranking; a figure that depends on either is
held within the bounds that follow, and taken from the per-query file where it is in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose
from typing import TYPE_CHECKING

from runner.metrics.names import Family
from runner.protocol.load import ProtocolDataset
from runner.protocol.splits import ALL, TEST, ids_sha256, split_ids, split_order
from runner.rows.retrieval import MAX_ID_LENGTH
from runner.schema_faults import shown
from runner.tasks.api import SealedFile, SealedSource, SealedUnit, Unavailable
from runner.tasks.code_collection import FORMAT as CODE
from runner.tasks.opaque import opaque
from runner.tasks.retrieval_queries import COLUMNS
from runner.tasks.sealed import check_id, header, oversized, read_table, refuse

if TYPE_CHECKING:
    from runner.metrics.ranking import PerQuery

HEADER = ["query_id", "document_id", "relevance", "score"]
_COUNT, _GRADE = re.compile(r"[0-9]{1,9}"), re.compile(r"-?[0-9]{1,9}")
_NAMELESS = "\0" * MAX_ID_LENGTH  # and a number: longer than any id that a row can have
Grades = dict[str, dict[str, int]]


@dataclass(slots=True, kw_only=True)
class _Found:
    """What the score files of all units say, under the ids that they use."""

    judged: dict[str, tuple[int, int]] = field(default_factory=dict)  # query: judged, positives
    grades: Grades = field(default_factory=dict)  # those that are not 0
    ranked: set[str] = field(default_factory=set)  # queries with a ranking
    documents: set[str] = field(default_factory=set)  # of whole rankings


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCollection:
    """Stands where a collection stands in scoring.

    ``documents`` is None where nobody can list them. ``real`` are the ids of score files, where
    they differ; ``unseen`` the number of relevant documents without a name of each query that has
    any. ``units`` maps a unit's score file to its per-query file; ``claims`` are the figures of
    one unit's; ``shares`` and ``held`` remember what ``completed`` believed.
    """

    name: str
    whole: bool
    document_count: int
    documents: frozenset[str] | None = field(repr=False)
    queries: Mapping[str, str] = field(repr=False)
    qrels: Mapping[str, Mapping[str, int]] = field(repr=False)
    real: Mapping[str, str] = field(repr=False)
    splits: Mapping[str, tuple[str, ...]] = field(repr=False)
    unseen: Mapping[str, int] = field(repr=False)
    units: Mapping[str, SealedFile] = field(repr=False)
    deep: bool = False
    claims: SealedFile | None = None
    shares: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)
    held: set[tuple[str, str, str]] = field(default_factory=set, repr=False)
    proven: bool = False

    @property
    def believed(self) -> int:
        """How many figures of queries were only held within bounds."""
        return len(self.held)

    def of_unit(self, scores: str) -> SealedCollection:
        """Return the collection with the figures that a unit claims for its queries."""
        return replace(self, claims=self.units.get(scores))

    def completed(self, per_query: PerQuery) -> PerQuery:
        """Put claimed figures in place of those that nothing here determines, where they can be.

        Unknown grades of 1 give the best nDCG that there can be, and the same share of it to every
        method; relevant documents below the cut can only raise what looks at whole rankings.
        """
        if self.claims is None or not self.unseen:
            return per_query
        open_metrics = [
            (column, metric.name, metric.full)
            for column, metric in enumerate(per_query.metrics)
            if metric.name not in per_query.unmeasured
            and (metric.family is Family.NDCG or (metric.full and self.deep))
        ]
        claims = _claims(self.claims) if open_metrics else {}
        values = per_query.values.copy()
        for position, query in enumerate(per_query.query_ids):
            if query not in self.unseen:
                continue
            for column, metric, full in open_metrics:
                best, said = float(values[position, column]), claims.get((query, metric))
                if said is None or said == best:
                    continue
                if (best <= said <= 1) if full else self._shares(query, metric, said, best):
                    values[position, column] = said
                    self.held.add((self.claims.path, query, metric))
        return replace(per_query, values=values)

    def _shares(self, query: str, metric: str, said: float, best: float) -> bool:
        if not 0 < said < best:
            return False
        share = said / best
        return isclose(share, self.shares.setdefault((query, metric), share), rel_tol=1e-9)


def sealed_collection(source: SealedSource) -> SealedCollection | Unavailable:
    """Return the judgments that all score files of a dataset agree on; see ``api.Task``."""
    entry, units = source.entry, source.units
    counted: dict[str, SealedFile] = {}
    for unit in units:
        if unit.per_query is None:
            refuse(unit.scores, "no per-query file says how much there was to find")
        counted[unit.scores.path] = unit.per_query
    if not units:
        return Unavailable(reason="no score file of it is there")
    large = oversized([*(unit.scores for unit in units), *counted.values()])
    if large is not None:
        return large
    found, whole = _Found(), entry.format == CODE
    for file in counted.values():
        _read_counts(file, found, source)
    first = next(iter(counted.values()))
    _check_counts(first, found, entry)
    if whole and len(found.judged) != entry.counts["queries"]:
        refuse(first, f"it has not the {entry.counts['queries']} queries of the protocol")
    for unit in units:
        _read_grades(unit, found, entry, whole=whole)
    if whole and not found.ranked:
        return Unavailable(reason="no query of it has a ranking")
    if whole and len(found.documents) != entry.counts["documents"]:
        refuse(units[0].scores, f"{len(found.documents)} documents are ranked in all")
    unseen = _unseen(first, found, whole=whole)
    names: Mapping[str, str] = {query: query for query in found.judged}
    places: Mapping[str, str] = {}
    if whole:
        names = opaque("query", found.judged, entry.fingerprint)
        places = opaque("document", found.documents, entry.fingerprint)
    splits = _splits(first, tuple(names.values()), source, whole=whole)
    return SealedCollection(
        name=entry.name,
        whole=whole,
        document_count=entry.counts["documents"],
        documents=frozenset(places.values()) if whole else None,
        queries=dict.fromkeys(names.values(), ""),
        qrels=_qrels(found, unseen, names, places),
        real={alias: real for ids in (names, places) for real, alias in ids.items() if whole},
        splits=splits,
        unseen={names[query]: count for query, count in unseen.items() if count},
        units=counted,
        deep=not whole and entry.counts["documents"] > source.protocol.top_k,
    )


def _read_counts(file: SealedFile, found: _Found, source: SealedSource) -> None:
    """Take in how many documents were judged, and are relevant, for each query."""
    table, most = read_table(file), source.entry.counts["queries"]
    expected = [*COLUMNS, *source.protocol.metrics_of("retrieval")]
    if header(table) != expected:
        refuse(file, f"its columns are not {', '.join(expected)}", 1)
    seen: set[str] = set()
    for line, (query, judged, positives, *_) in table:
        check_id(file, line, "query id", query)
        if not (_COUNT.fullmatch(judged) and _COUNT.fullmatch(positives)) or query in seen:
            refuse(file, f"query {shown(query)} twice, or without counts of judgments", line)
        seen.add(query)
        if len(seen) > most:
            refuse(file, f"more than the {most} queries of the protocol", line)
        counts = int(judged), int(positives)
        if found.judged.setdefault(query, counts) != counts or counts[0] < max(1, counts[1]):
            refuse(file, f"the judgments of {shown(query)} are not those of other files", line)
    if not seen or len(seen) != len(found.judged):
        refuse(file, f"it has {len(seen)} queries, the others have {len(found.judged)}")


def _read_grades(unit: SealedUnit, found: _Found, entry: ProtocolDataset, *, whole: bool) -> None:
    """Take in the relevance of what a unit ranked; two units may not differ in any."""
    file, before = unit.scores, frozenset(found.ranked)
    table = read_table(file)
    if header(table) != HEADER:
        refuse(file, f"its columns are not {', '.join(HEADER)}", 1)
    for line, (query, document, relevance, _) in table:
        if query not in found.judged or not _GRADE.fullmatch(relevance):
            refuse(file, f"query {shown(query)} is none, or {shown(relevance)} no grade", line)
        check_id(file, line, "document id", document)
        found.ranked.add(query)
        grade, graded = int(relevance), found.grades.setdefault(query, {})
        known = graded.get(document, 0)
        # Whole rankings have every document, so that one without a grade had 0 elsewhere.
        if grade != known and (known or (whole and query in before)):
            refuse(file, f"relevance {grade} of {shown(document)}; another file has {known}", line)
        if grade:
            graded[document] = grade
            if len(graded) > found.judged[query][0]:
                refuse(file, f"more documents of {shown(query)} have grades than were judged", line)
        if whole:
            found.documents.add(document)
            if len(found.documents) > entry.counts["documents"]:
                refuse(file, f"document {shown(document)} is one too many", line)


def _unseen(file: SealedFile, found: _Found, *, whole: bool) -> dict[str, int]:
    """Return for each query how many relevant documents no ranking has."""
    unseen = {}
    for query, (judged, positives) in found.judged.items():
        grades = found.grades.get(query, {}).values()
        good = sum(grade > 0 for grade in grades)
        unseen[query] = positives - good
        lacks = whole and query in found.ranked and good != positives
        if lacks or good > positives or len(grades) - good > judged - positives:
            said = f"{positives} relevant documents of {shown(query)}"
            refuse(file, f"{said}; {good} are in the score files")
    return unseen


def _splits(
    file: SealedFile, ids: Sequence[str], source: SealedSource, *, whole: bool
) -> dict[str, tuple[str, ...]]:
    """Return the ids of the splits that were asked, which have the digests of the protocol."""
    frozen, asked = source.entry.splits, set(source.splits)
    ordered = split_order(ids)
    if whole:
        found = {ALL: ordered, TEST: ordered}
    elif ALL in asked or len(asked) > 1:
        if len(ids) != frozen[ALL].queries:
            refuse(file, f"it has {len(ids)} queries, split all has {frozen[ALL].queries}")
        found = split_ids(ids, source.protocol.calibration)
    else:
        found = dict.fromkeys(asked, ordered)
    for name, queries in found.items():
        if ids_sha256(queries) != frozen[name].ids_sha256:
            refuse(file, f"its queries are not those of split {name}")
    return {ALL: ordered, **found}


def _check_counts(file: SealedFile, found: _Found, entry: ProtocolDataset) -> None:
    """Hold sums against the protocol's counts; of a part of the queries they are bounds."""
    sums = [sum(counts) for counts in zip(*found.judged.values(), strict=True)]
    frozen = [entry.counts["judgments"], entry.counts["positives"]]
    every = len(found.judged) == entry.counts["queries"]
    if (every and sums != frozen) or any(a > b for a, b in zip(sums, frozen, strict=True)):
        refuse(file, f"judgments and relevant ones are {sums} in all, the protocol has {frozen}")
    without = {query for query, (_, positives) in found.judged.items() if not positives}
    if without != found.judged.keys() & set(entry.document["queries_without_positives"]):
        refuse(file, "queries without a relevant document are not those of the protocol")


def _qrels(
    found: _Found, unseen: Mapping[str, int], names: Mapping[str, str], places: Mapping[str, str]
) -> Grades:
    """Return judgments under the ids of rows, with nameless documents for those not seen."""
    most = max(judged for judged, _ in found.judged.values())
    nameless = [f"{_NAMELESS}{number}" for number in range(most)]
    qrels: Grades = {}
    for query, (judged, _) in found.judged.items():
        grades = found.grades.get(query, {})
        known = {places.get(document, document): grade for document, grade in grades.items()}
        rest = nameless[: judged - len(known)]
        relevant = unseen[query]
        qrels[names[query]] = {
            **known,
            **dict.fromkeys(rest[:relevant], 1),
            **dict.fromkeys(rest[relevant:], 0),
        }
    return qrels


def _claims(file: SealedFile) -> dict[tuple[str, str], float]:
    """Return what a per-query file says: (query, metric) -> figure; other cells are left out."""
    table = read_table(file)
    columns = header(table)
    claims = {}
    for _, row in table:
        for name, text in zip(columns[len(COLUMNS) :], row[len(COLUMNS) :], strict=True):
            try:
                claims[row[0], name] = float(text)
            except ValueError:
                continue
    return claims
