"""Heads are trained on what the target says along its own texts."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from tests.inference.conftest import save, tiny_configs
from transformers import AutoTokenizer, LlavaConfig, LlavaForConditionalGeneration

from specmesh.decoding.sampling import Sampling, choose
from specmesh.inference.models.heads.along_text import drafts_along
from specmesh.inference.models.heads.eagle3.identity import HeadsTarget
from specmesh.inference.models.heads.folder import HeadsConfig
from specmesh.inference.models.heads.registry import load_heads
from specmesh.inference.models.heads.seen import look
from specmesh.inference.models.heads.target_ends import TargetEnds
from specmesh.inference.models.loading import read_model
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.offline import answer
from specmesh.models.corpus import read_sources, split
from specmesh.training.heads import pipeline, texts
from specmesh.training.heads.eagle3 import Eagle3Trainee, eagle3_config
from specmesh.training.heads.generations import GenerationPlan, write_shard
from specmesh.training.heads.held_out import measure
from specmesh.training.heads.loss import DEPTH_WEIGHT, SERVED_TEMPERATURE, heads_loss
from specmesh.training.heads.pipeline import HeadsPlan, run
from specmesh.training.heads.stateless import StatelessTrainee
from specmesh.training.heads.texts import CorpusUnfit
from specmesh.training.optimise import Schedule, optimise

KINDS = ["eagle3", "medusa", "recurrent"]
SILENT = Console(file=io.StringIO())


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    folders = {}
    for name, config in tiny_configs().items():
        folders[name] = tmp_path_factory.mktemp(name)
        save(folders[name], config)
    return folders


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Files of words, some of them held out."""
    monkeypatch.setattr(texts, "LEAST_TOKENS", 100)
    folder = tmp_path / "sources"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(60, 120):
        words = ["".join(rng.choice(list("abcdefgh"), 4)) for _ in range(200)]
        (folder / f"{number}.txt").write_text("\n".join(words))
    return folder


@pytest.fixture
def plan(sources, targets, tmp_path):
    return HeadsPlan(
        target=str(targets["llama"]),
        kind="recurrent",
        sources=sources,
        pattern="*.txt",
        work=tmp_path / "work",
        output=tmp_path / "heads",
        max_depth=2,
        inner_size=0,
        num_guessed=30,
        steps=10,
        batch_sequences=2,
        sequence_tokens=16,
        generations=GenerationPlan(1, rows=3, row_tokens=24, prompt_tokens=8),
        seed=0,
    )


def test_a_sequence_and_the_token_after_it_fit_the_context(plan):
    assert plan.within(16).sequence_tokens == 15
    assert plan.within(17).sequence_tokens == 16


def _target(folder):
    return read_model(str(folder), "float32", "cpu", None)


def _trainee(kind, target, guessed=None, max_depth=3, inner=32):
    torch.manual_seed(0)
    if kind == "eagle3":
        num_guessed = target.config.vocab_size if guessed is None else len(guessed)
        config = eagle3_config(
            target.model, num_guessed=num_guessed, inner_size=inner, max_depth=max_depth
        )
        return Eagle3Trainee(config, target.model, HeadsTarget(), guessed)
    config = HeadsConfig(
        kind=kind,
        target_digests={},
        hidden_size=target.config.hidden_size,
        embedding_size=target.config.hidden_size,
        vocab_size=target.config.vocab_size,
        inner_size=inner,
        max_depth=max_depth,
    )
    return StatelessTrainee(config, target.model, guessed)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_trained_for_any_target_and_load(plan, targets, kind, architecture):
    plan = replace(plan, kind=kind, target=str(targets[architecture]))
    found = run(plan, SILENT)
    assert [each.depth for each in found] == [1, 2]
    assert all(0 <= each.greedy <= 1 and 0 <= each.sampled <= 1 for each in found)

    target = _target(targets[architecture])
    digest = target.describe("float32", None, None).weights_digest
    heads = load_heads(plan.output, target.model, digest)
    text = torch.arange(1, 9)
    for logits in drafts_along(heads, target.model, text, 3):
        assert (logits > -torch.inf).sum(-1).tolist() == [30] * len(logits)
    config = json.loads((plan.output / "config.json").read_text())
    assert set(config["target_digests"]) == {"float32", "bfloat16", "float16"}
    assert str(plan.target) not in json.dumps(config)


@pytest.fixture
def of_images(targets, tmp_path):
    """A target of texts and images, whose text model has a configuration of its own."""
    vision = {
        **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1},
        **{"num_attention_heads": 1, "image_size": 8, "patch_size": 8},
    }
    config = LlavaConfig(
        text_config=tiny_configs()["llama"],
        vision_config={**vision, "model_type": "siglip_vision_model"},
        image_token_index=59,
    )
    folder = tmp_path / "llava"
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(targets["llama"]).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["eagle3", "recurrent"])
def test_heads_are_trained_for_a_target_of_texts_and_images(plan, of_images, kind):
    run(replace(plan, kind=kind, target=str(of_images)), SILENT)
    target = _target(of_images)
    digest = target.describe("float32", None, None).weights_digest
    load_heads(plan.output, target.model, digest)


@pytest.mark.parametrize("kind", ["eagle3", "recurrent"])
def test_stopped_run_goes_on_and_ends_with_the_same_weights(plan, tmp_path, monkeypatch, kind):
    plan = replace(plan, kind=kind)
    run(plan, SILENT)
    whole = (plan.output / "model.safetensors").read_bytes()

    stopped = replace(plan, work=tmp_path / "again", output=tmp_path / "other")
    real = optimise
    trained = []

    def interrupted(*given):
        for progress in real(*given):
            yield progress
            if len(trained) == 8:  # in the second lesson, whose checkpoint is yet to come
                raise KeyboardInterrupt
            trained.append(progress)

    monkeypatch.setattr(pipeline, "optimise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(stopped, SILENT)
    monkeypatch.setattr(pipeline, "optimise", real)
    log = io.StringIO()
    run(stopped, Console(file=log))
    assert f"{kind}: kl" not in log.getvalue()
    assert f"{kind}: tv" in log.getvalue()
    assert (stopped.output / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize(
    "change",
    [
        {"generations": GenerationPlan(3, rows=3, row_tokens=24, prompt_tokens=8)},
        {"batch_sequences": 1},
        {"steps": 14},
    ],
    ids=["shards", "sequences", "steps"],
)
def test_a_run_with_other_options_has_checkpoints_of_its_own(plan, tmp_path, change):
    run(plan, SILENT)
    other = replace(plan, **change)
    run(other, SILENT)
    fresh = replace(other, work=tmp_path / "fresh", output=tmp_path / "expected")
    run(fresh, SILENT)
    found, expected = (each.output / "model.safetensors" for each in (other, fresh))
    assert found.read_bytes() == expected.read_bytes()


def test_corpus_other_than_the_work_folders_is_refused(plan, sources):
    run(plan, SILENT)
    (sources / "another.txt").write_text("ab cd")
    with pytest.raises(CorpusUnfit, match="files other than"):
        run(plan, SILENT)


def test_corpus_without_such_files_is_refused(plan):
    with pytest.raises(CorpusUnfit, match=r"\*\.rst"):
        run(replace(plan, pattern="*.rst"), SILENT)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_learn_a_tiny_text_by_heart(targets, tmp_path, kind):
    target = _target(targets["llama"])
    trainee = _trainee(kind, target)
    text = np.random.default_rng(1).integers(1, 60, 17).astype(np.uint16)
    trainee.start(torch.from_numpy(text[None].astype(np.int64)))
    before = measure(trainee, text, 3, 17)
    schedule = Schedule(
        250,
        1,
        16,
        learning_rate=3e-2,
        muon_learning_rate=5e-2,
        warmup_steps=5,
        checkpoint_every=250,
    )

    def loss(batch):
        return heads_loss(trainee, trainee.look(batch), 3, 0.5)

    list(optimise(trainee.network, loss, text, schedule, tmp_path / "heads.pt"))
    after = measure(trainee, text, 3, 17)
    for shallow, deep in zip(before, after, strict=True):
        assert deep.sampled > shallow.sampled + 0.2
    assert after[0].sampled > (0.7 if kind == "medusa" else 0.9)


@pytest.mark.parametrize("guessed", [None, torch.arange(5, 50)], ids=["all", "some"])
def test_loss_equals_its_definition(targets, guessed):
    target = _target(targets["llama"])
    trainee = _trainee("recurrent", target, guessed, max_depth=2)
    ends = TargetEnds(target.model, guessed)
    tokens = torch.tensor([[5, 9, 2, 7, 30, 12]])
    seen = trainee.look(tokens)
    kept = np.arange(60) if guessed is None else guessed.numpy()

    def softmax(scores, temperature):
        weights = np.exp((scores - scores.max()) / temperature)
        return weights / weights.sum()

    losses = np.zeros(2)
    starts = range(4)
    for start in starts:
        state = seen.hidden[0, start]
        for depth in range(2):
            here = start + 1 + depth
            with torch.no_grad():
                feature, state = trainee.network(state, ends.embed(tokens[0, here]), depth)
                scores = target.model.get_output_embeddings()(feature).numpy()[kept]
            target_scores = seen.logits[0, here].numpy()
            p, q = softmax(target_scores, 1.0)[kept], softmax(scores, 1.0)
            kl = (p * np.log(p / q)).sum() + 1 - p.sum()
            p, q = (
                softmax(target_scores, SERVED_TEMPERATURE)[kept],
                softmax(scores, SERVED_TEMPERATURE),
            )
            losses[depth] += (0.3 * kl + 0.7 * (1 - np.minimum(p, q).sum())) / len(starts)
    weights = np.array([1, DEPTH_WEIGHT])
    expected = (losses * weights).sum() / weights.sum()
    assert heads_loss(trainee, seen, 2, 0.7).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["eagle3", "recurrent"])
def test_what_is_trained_is_not_the_target(targets, kind):
    target = _target(targets["llama"])
    trainee = _trainee(kind, target)
    heads_loss(trainee, trainee.look(torch.arange(1, 11)[None]), 2, 0.5).backward()
    assert all(parameter.grad is not None for parameter in trainee.network.parameters())
    ours, theirs = (
        {parameter.data_ptr() for parameter in model.parameters()}
        for model in (trainee.network, target.model)
    )
    assert not ours & theirs


def test_target_writes_what_it_would_answer(targets):
    model = TransformersModel.load(str(targets["llama"]), dtype="float32", device="cpu")
    target = _target(targets["llama"])
    prompts = [[5, 6, 7], [9, 8, 7], [1, 2, 3]]
    samplings = [Sampling(0.0), Sampling(0.8, seed=5), Sampling(1.0, seed=6)]
    answers = answer(model, prompts, samplings, 42)  # more than a stretch
    for prompt, own, sampling in zip(prompts, answers, samplings, strict=True):
        logits = look(target.model, torch.tensor([[*prompt, *own]])).logits[0].numpy()
        assert own == tuple(choose(logits[n - 1], sampling, n) for n in range(3, 45))


def test_a_shard_is_the_same_each_time_it_is_written(targets, tokens):
    model = TransformersModel.load(str(targets["llama"]), dtype="float32", device="cpu")
    plan = GenerationPlan(2, rows=3, row_tokens=20, prompt_tokens=8)
    first, other, again = (write_shard(model, tokens % 60, plan, each) for each in (0, 1, 0))
    assert first.shape == (3, 20)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_held_out_files_are_not_trained_on(plan, sources, targets):
    run(plan, SILENT)
    corpus = split(read_sources(sources, "*.txt"))
    assert corpus.held_out
    (work,) = plan.work.iterdir()
    held_out, training = (np.load(work / f"{name}.npy") for name in ("held_out", "training"))
    assert len(held_out) + len(training) == sum(
        len(_ids(targets["llama"], file.text)) + 1 for file in (*corpus.training, *corpus.held_out)
    )
    first = _ids(targets["llama"], corpus.held_out[0].text)
    assert held_out[: len(first)].tolist() == first


def _ids(folder, text):
    return _target(folder).tokenizer.encode(text)
