import copy
from functools import partial
from itertools import islice

import pytest
import torch

from specmesh.training.optimise import optimise, sample_batch
from specmesh.training.pair import build, language_loss


def _run(schedule, tokens, checkpoint, steps=None):
    model = build("drafter", 0)
    progress = list(
        islice(optimise(model, partial(language_loss, model), tokens, schedule, checkpoint), steps)
    )
    return model, progress


def _same_weights(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("stop_after", [3, 5])
def test_stopped_and_resumed_run_ends_with_the_same_weights(schedule, tokens, tmp_path, stop_after):
    whole, _ = _run(schedule, tokens, tmp_path / "whole.pt")
    _run(schedule, tokens, tmp_path / "stopped.pt", steps=stop_after)
    resumed, progress = _run(schedule, tokens, tmp_path / "stopped.pt")
    assert progress[0].step == 4  # the checkpoint is the one after step 3
    assert _same_weights(whole, resumed)


def test_finished_run_is_not_trained_further(schedule, tokens, tmp_path):
    done, _ = _run(schedule, tokens, tmp_path / "done.pt")
    again, progress = _run(schedule, tokens, tmp_path / "done.pt")
    assert progress == []
    assert _same_weights(done, again)


def test_stop_while_saving_leaves_the_last_checkpoint(schedule, tokens, tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    _run(schedule, tokens, path, steps=3)
    before = path.read_bytes()

    def interrupted(state, part):
        part.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _run(schedule, tokens, path)
    assert path.read_bytes() == before


def test_full_disk_is_told_by_path_and_leaves_the_last_checkpoint(
    schedule, tokens, tmp_path, monkeypatch
):
    path = tmp_path / "model.pt"
    _run(schedule, tokens, path, steps=3)
    before = path.read_bytes()

    def full(state, part):
        part.write_bytes(b"half")
        raise RuntimeError("file write failed\nand a trace")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=f"^cannot write {path}: file write failed$"):
        _run(schedule, tokens, path)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [before]


def test_training_lowers_the_loss(schedule, tokens, tmp_path):
    model = build("drafter", 0)
    batch = sample_batch(tokens, schedule, 0)
    before = language_loss(copy.deepcopy(model), batch).item()
    model, _ = _run(schedule, tokens, tmp_path / "model.pt")
    assert language_loss(model, batch).item() < before - 0.1


def test_every_window_is_seen_before_any_is_seen_twice(schedule, tokens):
    windows = (len(tokens) - 1) // schedule.sequence_tokens
    starts = [
        tuple(row.tolist())
        for step in range(windows // schedule.batch_sequences)
        for row in sample_batch(tokens, schedule, step)
    ]
    expected = {tuple(tokens[i * 16 : i * 16 + 17].tolist()) for i in range(windows)}
    assert len(starts) == windows
    assert set(starts) == expected


def test_learning_rate_warms_up_and_decays_to_a_twentieth(schedule):
    assert schedule.rate(0) == 0.5
    assert schedule.rate(2) == 1.0
    assert schedule.rate(schedule.steps) == pytest.approx(0.05)
