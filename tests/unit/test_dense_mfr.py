"""The multi-facet recommender without PyTorch: words, files, arrangement, scores, settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dense import mfr, papers, specter_mfr
from dense.mfr_files import form_of, read_recommender, read_vocabulary
from dense.mfr_model import BREAK, arranged
from dense.mfr_words import words
from dense.snapshot import ModelError
from expertise.inputs import Job, Paper, Reviewer
from sealbench_sdk import Task

from tests import mfr_model

#: Made with spaCy 3.8.18, `spacy.lang.en.English`, tokens joined and in lower case.
SPOKEN = {
    "We don't (e.g., in [3]) use state-of-the-art GANs; they're slow.": (
        "we do n't ( e.g. , in [ 3 ] ) use state - of - the - art gans ; they 're slow ."
    ),
    "Loss drops by 3.5% on 20K images, i.e. 10-fold, and/or 2^3 times.": (
        "loss drops by 3.5 % on 20 k images , i.e. 10 - fold , and/or 2 ^ 3 times ."
    ),
    "The model's users' \u201cneeds\u201d can't wait\u2014see https://example.org/a-b.": (
        "the model 's users ' \u201c needs \u201d ca n't wait \u2014 see https://example.org/a-b ."
    ),
    "Robots (C++) walk 5 km, weigh 12kg; cost $3M \u2026 or 4.": (
        "robots ( c++ ) walk 5 km , weigh 12 kg ; cost $ 3 m \u2026 or 4 ."
    ),
    "F1=0.87, p<0.05 w.r.t. BERT/RoBERTa: na\u00efve Bayes... it's done!": (
        "f1=0.87 , p<0.05 w.r.t . bert / roberta : na\u00efve bayes ... it 's done !"
    ),
    "Prof. X. of MIT cannot test A.B,z #tags * <eos> 'quoted'": (
        "prof. x. of mit can not test a.b , z # tags * < eos > ' quoted '"
    ),
}


@pytest.mark.parametrize("text", SPOKEN)
def test_words_are_those_of_spacy(text: str) -> None:
    assert " ".join(words(text)) == SPOKEN[text]


@pytest.mark.parametrize("text", ["", " \t\n", "'", "((((", "....", "n't", "\x1e\x1f", "a" * 3000])
def test_odd_texts_lose_nothing(text: str) -> None:
    assert "".join(words(text)) == "".join(text.split())


# --- files ---------------------------------------------------------------------------------------


def test_a_vocabulary_counts_words_that_were_kept(tmp_path: Path) -> None:
    path = tmp_path / "feature_vocab_file"
    path.write_text(mfr_model.vocabulary_text())
    assert read_vocabulary(path) == {word: n for n, word in enumerate(mfr_model.WORDS)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<sep>\t9\t3", "<sep>\t9\t4", r"vocab_file:4 is no new word .* number 3"),
        ("<sep>\t9\t3", "<unk>\t9\t3", "feature_vocab_file:4 is no new word"),
        ("<sep>\t9\t3", "<sep> 9 3", "feature_vocab_file:4 is no new word"),
        ("<eos>", "<end>", "does not have <unk> as 1 and <eos> as 2"),
        ("robots", "\udcff", "is not UTF-8"),
    ],
)
def test_vocabularies_that_are_none(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "feature_vocab_file"
    text = mfr_model.vocabulary_text()
    assert old in text
    path.write_bytes(text.replace(old, new).encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError, match=message):
        read_vocabulary(path)


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no feature_vocab_file: it is no multi-facet"):
        read_recommender(tmp_path)
    (tmp_path / "feature_vocab_file").write_text(mfr_model.vocabulary_text())
    with pytest.raises(ModelError, match=r"has no mfr_model_checkpoint/encoder\.pt"):
        read_recommender(tmp_path)


def weights() -> tuple[mfr_model.Weights, mfr_model.Weights]:
    return (
        mfr_model.filled(mfr_model.encoder_shapes()),
        mfr_model.filled(mfr_model.decoder_shapes()),
    )


def test_sizes_follow_from_the_tensors() -> None:
    form = form_of(*weights(), len(mfr_model.WORDS))
    assert (form.words, form.word_size, form.width, form.positions) == (12, 6, 8, 12)
    assert (form.reader_layers, form.writer_layers, form.facets, form.facet_size) == (2, 1, 3, 5)
    encoder, decoder = weights()
    for name in [name for name in decoder if name.startswith("coeff_")]:
        del decoder[name]  # only its training read them
    assert form_of(encoder, decoder, len(mfr_model.WORDS)) == form


LAYER = "dep_learner.decoder_array.0.layer.0"
TYPES = "seq_summarizer.encoder_array.0.emb_layer.token_type_embeddings.weight"


@pytest.mark.parametrize(
    ("part", "name", "shape", "message"),
    [
        ("encoder", "encoder.weight", None, r"encoder\.pt lacks encoder\.weight"),
        ("decoder", f"{LAYER}.output.dense.bias", None, r"lacks .*layer\.0\.output\.dense\.bias"),
        ("decoder", "out_linear_arr.3.weight", (5, 8), r"lacks init_linear_arr\.3\.weight"),
        ("decoder", "final_linear_arr.0.weight", (5, 5), "no part of this model"),
        ("decoder", "coeff_out_linear_1_tag.bias", (6,), "no part of this model"),
        ("decoder", "coeff_out_linear_3.weight", (1, 6), "predicts how long its facets are"),
        ("decoder", f"{LAYER}.output.LayerNorm.bias", (9,), r"\(9,\), not \(8,\)"),
        ("encoder", "encoder.weight", (12, 6, 1), "not 2 dimensions"),
        ("encoder", "encoder.weight", (11, 6), r"\(11, 6\), not \(12, 6\)"),
        ("encoder", TYPES, (2, 8), "knows 2 types of words"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    part: str, name: str, shape: tuple[int, ...] | None, message: str
) -> None:
    tensors = dict(zip(("encoder", "decoder"), weights(), strict=True))
    if shape is None:
        del tensors[part][name]
    else:
        tensors[part][name] = np.ones(shape)
    with pytest.raises(ModelError, match=message):
        form_of(tensors["encoder"], tensors["decoder"], len(mfr_model.WORDS))


# --- arrangement ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "abstract"),
    [
        ("trees", "parse of robots"),
        ("", ""),
        ("unheard of", "trees , trees"),
        ("trees of grammar", "parse markets , parse"),  # ten words and two marks: just too long
        ("trees of grammar", "parse markets , parse robots"),
        ("trees of grammar", "parse markets , parse robots , robots of trees , trees of grammar"),
    ],
)
def test_words_stand_at_the_end_and_types_one_later(title: str, abstract: str) -> None:
    numbers = {word: n for n, word in enumerate(mfr_model.WORDS)}
    found = arranged(f"{title}{BREAK}{abstract}", numbers, mfr_model.POSITIONS)
    assert found.tolist() == list(mfr_model.arranged(title.split(), abstract.split()))


def test_an_arrangement_written_out() -> None:
    numbers = {word: n for n, word in enumerate(mfr_model.WORDS)}
    found = arranged(f"Trees{BREAK}of parsers", numbers, 8)
    assert found.tolist() == [[0, 0, 4, 3, 5, 1, 3, 2], [0, 0, 0, 1, 1, 2, 2, 2]]


# --- scores --------------------------------------------------------------------------------------

TASK = Task(
    task="expertise", dataset="d", seed=1, top_k=7, config={}, options={}, queries=0, documents=0,
    threads=1,
)  # fmt: skip
OWN = tuple(Paper(f"p{n}", "t", "a") for n in range(3))
JOB = Job(
    task=TASK, regime="ta", submissions=OWN[:2], counts={},
    reviewers=(Reviewer("r1", (OWN[2], OWN[0])), Reviewer("r2", (OWN[0],))),
)  # fmt: skip


def test_a_score_is_a_squared_cosine_of_the_nearest_facet() -> None:
    source = np.random.default_rng(3)
    people, facets = source.normal(size=(5, 4)), source.normal(size=(6, 2, 4))
    people, facets = (one / np.linalg.norm(one, axis=-1)[..., None] for one in (people, facets))
    facets[0] = -people[0]
    found = mfr.affinities(people.astype(np.float32), facets.astype(np.float32))
    expected = [[mfr_model.distance_score(who, paper) for paper in facets] for who in people]
    assert np.allclose(found, expected, rtol=0, atol=1e-6)
    assert found[0, 0] == 0.0


def test_who_wrote_what() -> None:
    assert [paper.id for paper in JOB.profile_papers] == ["p0", "p2"]
    assert mfr._authorship(JOB) == [[0, 1], [0]]


def test_settings() -> None:
    assert mfr.Settings.of({}) == mfr.Settings()
    found = mfr.Settings.of({"mfr": "m", "mfr_heads": 2, "mfr_epochs": 0, "mfr_batch_size": 9})
    assert found == replace(mfr.Settings(), model="m", heads=2, epochs=0, batch_size=9)
    for bad in ({"mfr_heads": 0}, {"mfr_epochs": -1}, {"mfr_learning_rate": 0.0}):
        with pytest.raises(ValueError, match="these settings train nobody"):
            mfr.Settings.of(bad)


@pytest.mark.parametrize(("weight", "expected"), [(None, 0.84), (0.8, 0.84), (0.0, 0.2), (1, 1.0)])
def test_the_ensemble_adds_both_as_they_are(
    monkeypatch: pytest.MonkeyPatch, weight: float | None, expected: float
) -> None:
    monkeypatch.setattr(mfr, "score", lambda _: np.full((2, 2), 0.2))
    monkeypatch.setattr(papers, "score", lambda _: np.full((2, 2), 1.0))
    config = {} if weight is None else {"specter_weight": weight}
    found = specter_mfr.score(replace(JOB, task=replace(TASK, config=config)))
    assert np.allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_beyond_0_to_1_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="specter_weight is"):
        specter_mfr.score(replace(JOB, task=replace(TASK, config={"specter_weight": weight})))
