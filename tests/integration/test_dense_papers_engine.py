"""Encoders of papers in the dense image: mounted snapshots, an adapter, and one trained there.

The snapshots are made in the test: a BERT of two layers whose weights follow from a formula.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.engine.docker import DockerEngine
from runner.imagebuild import build
from runner.imagebuild.build import IMAGES_FOLDER
from tests.inside import run_inside

pytestmark = pytest.mark.engine

#: The first numbers of a token's state with the adapter, by the package `adapters` 1.3.0.
GOLDEN = [-0.542139, 0.618744, -0.037226, 0.375747, 0.890362, 0.176049]

INSIDE = r"""
import json, random
from pathlib import Path
import numpy as np
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast
import dense.snapshot
from dense import acl, papers
from dense.adapter import put_adapter
from dense.snapshot import ModelError
from expertise.inputs import Job, Paper, Reviewer
from sealbench_sdk import Task

models = Path("/tmp/models")
dense.snapshot.MOUNTED = models

def fill(named):
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        steps = torch.arange(tensor.numel(), dtype=torch.float64) * 0.7 + len(name)
        tensor.data.copy_((steps.sin() * 0.5).reshape(tensor.shape).float())

size = dict(vocab_size=24, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=32)
base = BertModel(BertConfig(**size)).eval()
fill(list(base.named_parameters()))
words = "[PAD] [UNK] [CLS] [SEP] [MASK] trees parse markets auction vision label robot walk".split()
words += [f"w{n}" for n in range(24 - len(words))]
folder = models / "base"
folder.mkdir(parents=True)
torch.manual_seed(0)
# The formula gives every token one state; to tell texts apart takes chance.
BertModel(BertConfig(**size, initializer_range=0.6)).save_pretrained(folder)
BertTokenizerFast(vocab={word: place for place, word in enumerate(words)}).save_pretrained(folder)

shapes = {"adapter_down.0.weight": (1, 16), "adapter_down.0.bias": (1,),
          "adapter_up.weight": (16, 1), "adapter_up.bias": (16,)}
named = [(f"encoder.layer.{layer}.output.adapters.[PRX].{part}", torch.empty(shape))
         for layer in range(2) for part, shape in shapes.items()]
fill(named)
added = models / "proximity"
added.mkdir()
torch.save({f"bert.{name}": tensor for name, tensor in named}, added / "pytorch_adapter.bin")
form = {"config": {"non_linearity": "relu", "reduction_factor": 16, "original_ln_after": True}}
(added / "adapter_config.json").write_text(json.dumps(form))

ids = torch.tensor([[2, 7, 8, 3, 9, 10, 3]])
put_adapter(base, added)
with torch.inference_mode():
    state = base(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0, 0, :6]

def refused(change):
    (added / "adapter_config.json").write_text(json.dumps({"config": {**form["config"], **change}}))
    try:
        put_adapter(BertModel(BertConfig(**size)), added)
    except ModelError:
        return True
    finally:
        (added / "adapter_config.json").write_text(json.dumps(form))
    return False

submissions = (Paper("s1", "parse trees", "trees parse trees"), Paper("s2", "auction", "markets"))
reviewers = (Reviewer("r1", (Paper("p1", "trees", "parse parse trees"),)),
             Reviewer("r2", (Paper("p2", "markets", "auction markets"), submissions[0])))

def job(**config):
    task = Task(task="expertise", dataset="d", seed=1, top_k=7, config=config, options={},
                queries=0, documents=0, threads=1)
    return Job(task=task, regime="ta", reviewers=reviewers, submissions=submissions, counts={})

own = dict(model="base", token_pooling="cls", max_tokens=32, separator="[SEP]", pooling="max")
plain = papers.score(job(**own))
adapted = papers.score(job(**own, adapter="proximity"))
spaced = papers.score(job(**{**own, "separator": " "}))

subjects = ["trees of grammar and parsing of sentences by charts and trees in language",
            "markets and auctions where bidders bid for goods and prices clear markets",
            "robots that walk on legs and learn to walk over rough ground by trial"]
source = random.Random(0)
texts = [" ".join(source.sample(one.split(), 11)) for one in subjects for _ in range(20)]
training = acl.Training(dimension=32, vocabulary=300, batch_size=16, epochs=5, learning_rate=0.02)
trained = [acl.train(texts, training).vectors([*subjects, "trees in language", "the zzz"])
           for _ in range(2)]
cosines = trained[0] @ trained[0].T
left, right = acl.segments("a b c d e f g h i j", random.Random(5))
Path("/out/found.json").write_text(json.dumps({
    "state": state.tolist(),
    "refused": [refused(change) for change in
                ({"mh_adapter": True}, {"ln_after": True}, {"non_linearity": "swish2"}, {})],
    "plain": plain.tolist(), "adapted": adapted.tolist(),
    "separator_counts": not np.allclose(plain, spaced),
    "same_training": bool(np.array_equal(*trained)),
    "nearest": int(cosines[3, :3].argmax()),
    "segments": [left, right],
    "top": acl.top_mean(np.array([[0.9, 0.2], [0.6, 0.1]])).tolist(),
}))
"""


@pytest.fixture(scope="module")
def image(engine: DockerEngine) -> str:
    """The dense image in the engine; built where it is not there."""
    cache = IMAGES_FOLDER.parent / ".cache"
    (built,) = build(["dense"], engine=engine, cache_dir=cache).images
    return built.pin.digest


def test_snapshots_an_adapter_and_training(
    engine: DockerEngine, image: str, tmp_path: Path
) -> None:
    found = run_inside(engine, image, tmp_path, INSIDE)
    assert found["state"] == pytest.approx(GOLDEN, abs=2e-5)
    assert found["refused"] == [True, True, True, False]
    for scores in (found["plain"], found["adapted"]):
        assert all(-1 <= score <= 1 for row in scores for score in row)
        assert scores[1][0] == pytest.approx(1.0)  # the submission itself is in the profile
    assert found["plain"] != found["adapted"]
    assert found["separator_counts"] is True
    assert found["same_training"] is True
    assert found["nearest"] == 0
    left, right = (set(part.split()) for part in found["segments"])
    assert left
    assert right
    assert not left & right
    assert found["top"] == pytest.approx([0.5, 0.1])  # of three papers, one is missing
