"""Porter's stemmer with the departures that TPMS's published scores rest on (those of NLTK).

Source: M. F. Porter, "An algorithm for suffix stripping", Program 14 (1980); the departures: words
of one or two letters stay, ``ies``/``ied`` of four-letter words become ``ie``, a final ``y`` turns
only after a consonant, ``bli``, ``alli``, ``fulli`` and ``logi`` are suffixes of step 2, a
vowel-consonant word of two letters counts as short, and a few irregular forms are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

Condition = Callable[[str], bool]
Rule = tuple[str, str, Condition]  # suffix, what replaces it, condition on the stem

_IRREGULAR = {
    "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "innings": "inning",
    "outings": "outing", "cannings": "canning",
}  # fmt: skip
_FIXED = frozenset(
    {"sky", "news", "inning", "outing", "canning", "howe", "proceed", "exceed", "succeed"}
)


#: Stems that are known already.
STEMS: dict[str, str] = {}


def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    found = STEMS.get(word)
    if found is None:
        found = STEMS[word] = _stem(word)
    return found


def _stem(word: str) -> str:
    if len(word) <= 2 or word in _FIXED:
        return word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    for step in (_step_1a, _step_1b, _step_1c, _step_2, _step_3, _step_4, _step_5a, _step_5b):
        word = step(word)
    return word


def _consonants(word: str) -> list[bool]:
    found: list[bool] = []
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and bool(found) and found[-1])
        found.append(not vowel)
    return found


def _measure(stem_: str) -> int:
    """Count how often a consonant follows a vowel."""
    marks = _consonants(stem_)
    return sum(not one and other for one, other in pairwise(marks))


def _has_vowel(stem_: str) -> bool:
    return not all(_consonants(stem_))


def _always(_stem: str) -> bool:
    return True


def _some(stem_: str) -> bool:
    return _measure(stem_) > 0


def _more(stem_: str) -> bool:
    return _measure(stem_) > 1


def _doubled(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _consonants(word)[-1]


def _short(word: str) -> bool:
    marks = _consonants(word)
    if len(word) == 2:
        return marks == [False, True]
    return marks[-3:] == [True, False, True] and word[-1] not in "wxy"


def _apply(word: str, rules: Sequence[Rule]) -> str:
    """Apply the first rule whose suffix the word has, if its condition holds."""
    for suffix, replacement, condition in rules:
        if word.endswith(suffix):
            left = word[: len(word) - len(suffix)]
            return left + replacement if condition(left) else word
    return word


def _step_1a(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    rules = (("sses", "ss", _always), ("ies", "i", _always), ("ss", "ss", _always))
    return _apply(word, (*rules, ("s", "", _always)))


def _step_1b(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _some(word[:-3]) else word
    for suffix in ("ed", "ing"):
        left = word.removesuffix(suffix)
        if left != word and _has_vowel(left):
            return _mended(left)
    return word


def _mended(left: str) -> str:
    if left.endswith(("at", "bl", "iz")):
        return left + "e"
    if _doubled(left):
        return left if left[-1] in "lsz" else left[:-1]
    return left + "e" if _measure(left) == 1 and _short(left) else left


def _step_1c(word: str) -> str:
    left = word[:-1]
    if word.endswith("y") and len(left) > 1 and _consonants(left)[-1]:
        return left + "i"
    return word


_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"),
    ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"),
    ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
    ("fulli", "ful"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""),
    ("ness", ""),
)  # fmt: skip
_STEP_4_HEAD = ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent")
_STEP_4_TAIL = ("ou", "ism", "ate", "iti", "ous", "ive", "ize")


def _step_2(word: str) -> str:
    if word.endswith("alli") and _some(word[:-4]):
        return _step_2(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _some(word[:-3]) else word
    return _apply(word, [(suffix, new, _some) for suffix, new in _STEP_2])


def _step_3(word: str) -> str:
    return _apply(word, [(suffix, new, _some) for suffix, new in _STEP_3])


def _step_4(word: str) -> str:
    def ion(left: str) -> bool:
        return _more(left) and left[-1] in "st"

    rules: list[Rule] = [(suffix, "", _more) for suffix in _STEP_4_HEAD]
    return _apply(word, [*rules, ("ion", "", ion), *((end, "", _more) for end in _STEP_4_TAIL)])


def _step_5a(word: str) -> str:
    left = word[:-1]
    if word.endswith("e") and (_more(left) or (_measure(left) == 1 and not _short(left))):
        return left
    return word


def _step_5b(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _more(word[:-1]) else word
