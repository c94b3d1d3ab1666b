"""What keeps a threshold honest: where it comes from, and that nothing of the test is in it.

Test labels never choose a threshold and methods never override it. Validation and test share no
source, whatever its line ends; with ``group_disjoint`` they share no group either, and that holds
with a fixed threshold too, because a method may have been tuned on the validation pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from runner.datasets.code_pairs import CodePairs
from runner.errors import ProtocolError
from runner.tasks.pair_dataset import PairDataset

if TYPE_CHECKING:
    from numpy import bool_, float64
    from numpy.typing import NDArray

FIXED, VALIDATION_F1 = "fixed", "validation_f1"
GROUP_DISJOINT = "group_disjoint"
BY_GROUPS, NOT_CLAIMED = "by_groups", "not_claimed"


def split_policy(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return a declared split policy with its default filled in."""
    fields = list(declared.get("group_fields", ()))
    if len(set(fields)) != len(fields):
        _refuse("split-policy", "a group field stands twice", "name each once")
    if declared["type"] == GROUP_DISJOINT and not fields:
        message = "group_disjoint needs group_fields: the columns that hold the groups"
        _refuse("split-policy", message, "name them, or declare content_disjoint")
    return {
        "type": declared["type"],
        "description": declared["description"],
        "group_fields": fields,
    }


def independence(policy: Mapping[str, Any]) -> str:
    """Return what a split policy lets a benchmark claim."""
    return BY_GROUPS if policy["type"] == GROUP_DISJOINT else NOT_CLAIMED


def check_policies(dataset: PairDataset, rules: Mapping[str, Any]) -> None:
    """Raise ``ProtocolError`` where a dataset breaks the rules of its protocol."""
    policy, threshold = rules["split_policy"], rules["threshold_policy"]
    if threshold["type"] == VALIDATION_F1 and dataset.validation is None:
        message = f"{dataset.name} has no validation pairs to fit a threshold on"
        _refuse("no-validation", message, "add validation_path, or declare a fixed threshold")
    if threshold["type"] == VALIDATION_F1 and len(set(_labels(dataset.validation))) < 2:
        message = f"the validation pairs of {dataset.name} are of one class"
        _refuse("no-validation", message, "add pairs of the other class")
    for field in policy["group_fields"]:
        _check_groups(dataset, field)
    if dataset.validation is not None:
        _check_contents(dataset.test, dataset.validation, dataset.name)
        if policy["type"] == GROUP_DISJOINT:
            for field in policy["group_fields"]:
                _check_overlap(dataset.test, dataset.validation, field)


def threshold_of(
    rules: Mapping[str, Any], scores: NDArray[float64], positive: NDArray[bool_]
) -> float:
    """Return the frozen threshold, or the one that the validation pairs give."""
    policy = rules["threshold_policy"]
    if policy["type"] == FIXED:
        return float(policy["value"])
    from runner.metrics.classification import best_threshold, classes

    return best_threshold(classes(scores, positive))


def _labels(part: CodePairs | None) -> list[int]:
    return [] if part is None else part.labels


def _check_groups(dataset: PairDataset, field: str) -> None:
    for part in dataset.parts:
        if field not in part.groups:
            known = ", ".join(part.groups) or "none"
            message = f"{dataset.name} has no group column {field!r}; there are: {known}"
            _refuse("missing-groups", message, "add the column, or correct group_fields")
        for value, line in zip(part.groups[field], part.table.lines, strict=True):
            if not value.strip():
                message = f"{part.table.path.name}:{line} of {dataset.name} has no {field}"
                _refuse("blank-group", message, "annotate every pair")


def _check_overlap(test: CodePairs, validation: CodePairs, field: str) -> None:
    sides = [{value.strip() for value in part.groups[field]} for part in (test, validation)]
    shared = sorted(set.intersection(*sides))
    if shared:
        message = f"{field} {shared[0]!r} of {test.name} is in validation and test"
        _refuse("overlapping-groups", message, "move whole groups to one side")


def _check_contents(test: CodePairs, validation: CodePairs, name: str) -> None:
    known = {test.sources.by_id[source].key: source for source in (*test.left, *test.right)}
    for source in (*validation.left, *validation.right):
        twin = known.get(validation.sources.by_id[source].key)
        if twin is not None:
            message = f"validation source {source!r} of {name} has the content of {twin!r} in test"
            _refuse("overlapping-content", message, "take its pairs out of one side")


def _refuse(code: str, message: str, fix: str) -> NoReturn:
    raise ProtocolError(f"protocol.{code}", message, fix=fix)
