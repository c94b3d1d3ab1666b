"""The multi-facet recommender and its ensemble with SPECTER in the dense image, on small models.

The models are made in the image, for PyTorch is there: a BERT of two layers, and a recommender
whose weights the test hands over and whose arithmetic it does again with numpy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.engine.docker import DockerEngine
from runner.imagebuild import build
from runner.imagebuild.build import IMAGES_FOLDER
from runner.models import read_model
from tests import mfr_model
from tests.inside import run_inside
from tests.reviewer_runs import REVISION, bench_of, means, outcomes, rated

pytestmark = pytest.mark.engine

TITLES = ("trees of grammar", "markets", "robots , trees")
ABSTRACTS = ("parse grammar of trees", "auctions of things , markets of auctions and markets", "")
#: Eleven wrote the first paper together, more than one row of the training holds.
AUTHORSHIP = ([*range(11), 2], [0, 11], [11])
ENCODER = mfr_model.filled(mfr_model.encoder_shapes())
DECODER = mfr_model.filled(mfr_model.decoder_shapes())

INSIDE = r"""
import json, os, shutil
from pathlib import Path
import numpy as np
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast
import dense.snapshot
from dense import mfr, mfr_files, papers, specter_mfr
from dense.mfr_model import BREAK, FacetEncoder
from dense.snapshot import ModelError
from expertise.inputs import Job, Paper, Reviewer
from sealbench_sdk import Task

given = json.loads(Path("/in/given.json").read_text())
models = Path("/out/models")
dense.snapshot.MOUNTED = models
folder = models / "mfr"
(folder / "mfr_model_checkpoint").mkdir(parents=True)
(folder / "feature_vocab_file").write_text(given["vocabulary"])
state = {}
for part in ("encoder", "decoder"):
    state[part] = {name: torch.tensor(values) for name, values in given[part].items()}

def save(part, tensors):
    torch.save(tensors, folder / "mfr_model_checkpoint" / f"{part}.pt")

for part, tensors in state.items():
    save(part, tensors)
words = "[PAD] [UNK] [CLS] [SEP] [MASK] trees parse markets auctions grammar of robots".split()
torch.manual_seed(0)
BertModel(BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=2,
                     num_attention_heads=2, intermediate_size=32, max_position_embeddings=32,
                     initializer_range=0.6)).save_pretrained(models / "specter")
BertTokenizerFast(vocab={word: place for place, word in enumerate(words)}).save_pretrained(
    models / "specter")

settings = mfr.Settings(heads=2, learning_rate=0.05, epochs=3)
snapshot, facets = mfr._snapshot(settings)
encoder = FacetEncoder(snapshot, threads=2, batch_size=2, heads=2)
texts = [title + BREAK + abstract for title, abstract in given["papers"]]
vectors = np.concatenate([v for _, v in encoder.encode(encoder.tokenise(texts))])
vectors = vectors.reshape(len(texts), facets, -1)
start = torch.randn(12, facets and vectors.shape[2], generator=torch.Generator().manual_seed(7))
people = [mfr.train(vectors, given["authorship"], settings, 7) for _ in range(2)]

own = [Paper(f"p{n}", *paper) for n, paper in enumerate(given["papers"])]
reviewers = (Reviewer("r1", (own[0],)), Reviewer("r2", (own[1], own[2])))

def job(**config):
    task = Task(task="expertise", dataset="d", seed=1, top_k=7, config=config, options={},
                queries=0, documents=0, threads=1)
    return Job(task=task, regime=config.get("regime", "ta"), reviewers=reviewers,
               submissions=tuple(own), counts={})

config = dict(model="specter", token_pooling="cls", max_tokens=32, separator="[SEP]",
              pooling="max", mfr_heads=2, mfr_epochs=5)

def refused(act):
    try:
        act()
    except (ModelError, ValueError) as error:
        return str(error)
    return None

def changed(part, change):
    tensors = dict(state[part])
    change(tensors)
    save(part, tensors)
    try:
        return refused(lambda: mfr.score(job(**config)))
    finally:
        save(part, state[part])

name = "out_linear_arr.1.bias"
bad = {
    "lacks": changed("decoder", lambda t: t.pop(name)),
    "unknown": changed("encoder", lambda t: t.update(more=t["encoder.weight"])),
    "shape": changed("decoder", lambda t: t.update({name: torch.zeros(4)})),
    "words": changed("encoder", lambda t: t.update({"encoder.weight": torch.zeros(7, 6)})),
    "zero": changed("decoder", lambda t: t.update(
        {key: t[key] * 0 for key in (name, "out_linear_arr.1.weight")})),
    "nan": changed("decoder", lambda t: t.update({name: t[name] * float("nan")})),
    "lengths": changed("decoder", lambda t: t.update(
        {"coeff_out_linear_3.weight": torch.zeros(1, 6)})),
    "heads": refused(lambda: mfr.score(job(**{**config, "mfr_heads": 3}))),
    "weight": refused(lambda: specter_mfr.score(job(**config, specter_weight=1.2))),
    "counts": refused(lambda: mfr.score(job(**config, regime="f"))),
    "absent": refused(lambda: mfr.score(job(**config, mfr="other"))),
}
damaged = folder / "mfr_model_checkpoint" / "encoder.pt"
damaged.write_bytes(b"no tensors")
bad["damaged"] = refused(lambda: mfr.score(job(**config)))
torch.save([1], damaged)
bad["list"] = refused(lambda: mfr.score(job(**config)))

class Trap:
    def __reduce__(self):
        return os.mkdir, ("/tmp/sprung",)

torch.save({"encoder.weight": Trap()}, damaged)
bad["trap"] = refused(lambda: mfr.score(job(**config)))
damaged.unlink()
bad["file"] = refused(lambda: mfr.score(job(**config)))
save("encoder", state["encoder"])

alone, specter = mfr.score(job(**config)), papers.score(job(**config))
both = specter_mfr.score(job(**config))
Path("/out/found.json").write_text(json.dumps({
    "facets": vectors.tolist(), "start": start.tolist(), "people": people[0].tolist(),
    "same": bool(np.array_equal(*people)),
    "scores": mfr.affinities(people[0], vectors).tolist(), "alone": alone.tolist(),
    "specter": specter.tolist(), "both": both.tolist(), "bad": bad,
    "sprung": Path("/tmp/sprung").exists(),
    "other_seed": bool(np.array_equal(
        people[0], mfr.train(vectors, given["authorship"], settings, 8))),
}))
"""


@pytest.fixture(scope="module")
def made(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the script above has run."""
    (built,) = build(["dense"], engine=engine, cache_dir=IMAGES_FOLDER.parent / ".cache").images
    folder = tmp_path_factory.mktemp("mfr")
    given = {
        "vocabulary": mfr_model.vocabulary_text(),
        "papers": list(zip(TITLES, ABSTRACTS, strict=True)),
        "authorship": AUTHORSHIP,
        "encoder": {name: one.tolist() for name, one in ENCODER.items()},
        "decoder": {name: one.tolist() for name, one in DECODER.items()},
    }
    run_inside(
        engine, built.pin.digest, folder, script=INSIDE, given__json=json.dumps(given).encode()
    )
    (folder / "out" / "models" / "specter" / "model.safetensors").chmod(0o644)  # made as 0600
    return folder / "out"


@pytest.fixture(scope="module")
def found(made: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((made / "found.json").read_bytes())
    return document


@pytest.fixture(scope="module")
def by_hand() -> list[mfr_model.Array]:
    """The facets of every paper, by numpy."""
    return [
        mfr_model.facets(title.split(), abstract.split(), ENCODER, DECODER)
        for title, abstract in zip(TITLES, ABSTRACTS, strict=True)
    ]


def test_facets_are_those_of_plain_arithmetic(
    found: dict[str, Any], by_hand: list[mfr_model.Array]
) -> None:
    facets = np.array(found["facets"])
    assert facets.shape == (3, mfr_model.FACETS, mfr_model.SIZE)
    assert np.abs(facets - np.array(by_hand)).max() < 1e-5
    assert len({tuple(one) for one in facets.reshape(9, -1).round(3).tolist()}) == 9


def test_reviewers_are_trained_as_by_plain_arithmetic(
    found: dict[str, Any], by_hand: list[mfr_model.Array]
) -> None:
    start = np.array(found["start"])
    start = start / np.linalg.norm(start, axis=1, keepdims=True)
    rows = [(0, AUTHORSHIP[0][:10]), (0, AUTHORSHIP[0][10:]), (1, AUTHORSHIP[1]), (2, [11])]
    expected = mfr_model.trained(
        start, [by_hand[paper] for paper, _ in rows], [people for _, people in rows], steps=3
    )
    assert np.abs(np.array(found["people"]) - expected).max() < 1e-5
    assert np.abs(start - expected).max() > 0.05  # they did move
    assert found["same"] is True
    assert found["other_seed"] is False


def test_a_score_is_a_distance(found: dict[str, Any], by_hand: list[mfr_model.Array]) -> None:
    people = np.array(found["people"])
    expected = [[mfr_model.distance_score(who, paper) for paper in by_hand] for who in people]
    assert np.abs(np.array(found["scores"]) - np.array(expected)).max() < 1e-5
    assert np.ptp(expected) > 0.5


def test_an_ensembles_score_is_the_weighted_sum(found: dict[str, Any]) -> None:
    alone, specter, both = (np.array(found[name]) for name in ("alone", "specter", "both"))
    assert alone.shape == (2, 3)
    assert ((alone >= 0) & (alone <= 1)).all()
    assert np.allclose(specter[1, 1:], 1.0)  # in the profile
    assert np.allclose(both, 0.8 * specter + 0.2 * alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lacks", "mfr_model_checkpoint/decoder.pt lacks out_linear_arr.1.bias"),
        ("unknown", "encoder.pt has more, which is no part of this model"),
        ("shape", "out_linear_arr.1.bias of mfr_model_checkpoint/decoder.pt has the shape (4,)"),
        (
            "words",
            "encoder.weight of mfr_model_checkpoint/encoder.pt has the shape (7, 6), not (12",
        ),
        ("zero", "the vector of 'p0' is zero"),
        ("nan", "the vector of 'p0' is not finite"),
        ("lengths", "predicts how long its facets are"),
        ("heads", "3 attention heads do not divide the width 8 of mfr"),
        ("weight", "specter_weight is 1.2"),
        ("counts", "word counts are no text"),
        ("absent", "no model 'other'"),
        ("damaged", "encoder.pt cannot be loaded as tensors"),
        ("list", "encoder.pt is no state dict"),
        ("trap", "encoder.pt cannot be loaded as tensors (UnpicklingError)"),
        ("file", "mfr has no mfr_model_checkpoint/encoder.pt"),
    ],
)
def test_what_is_refused(found: dict[str, Any], change: str, message: str) -> None:
    assert message in (found["bad"][change] or "nothing")
    assert found["sprung"] is False


def test_the_ensemble_runs_on_mounted_models_and_seals(made: Path, tmp_path: Path) -> None:
    pins = {}
    for name in ("specter", "mfr"):
        digest = read_model(made / "models" / name).digest
        pins[name] = f"{{name: {name}, revision: {REVISION}, digest: '{digest}'}}"
    bundle = bench_of(tmp_path).run(
        "  - {name: specter_mfr, image: dense, config: {mfr_heads: 2, max_tokens: 32},"
        f" models: [{pins['specter']}, {pins['mfr']}]}}",
        options=("--models-root", str(made / "models")),
        memory="2GiB",
    )
    assert outcomes(bundle) == {"specter_mfr": {"ok"}}
    assert 0 <= means(bundle, "wkt_loss")["specter_mfr"] <= 1
    assert len({score for _, _, score in rated(bundle, "specter_mfr", "toy-1")}) > 1
    log = (bundle / "logs" / "specter_mfr" / "toy-1.stderr.log").read_text()
    assert (
        f"model {read_model(made / 'models' / 'mfr').digest}, 15 dimensions, 3 facets (2 heads)"
        in log
    )
