"""Hugging Face's Trainer: optimizers, schedulers, clipping, and checkpoints that resume with the same bits."""

import copy
import pathlib
import re
import warnings

import pytest
import torch
from conftest import same_bits

import gluon

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not transformers.utils.is_accelerate_available():
    pytest.skip("transformers' Trainer needs accelerate", allow_module_level=True)

STEPS, SAVED = 20, 10


class Text(torch.utils.data.Dataset):
    """Rows of 8 tokens, each 5 after the one before."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = (index + 5 * torch.arange(8)) % 32
        return {"input_ids": tokens, "labels": tokens}


def gpt2(seed=0, **options):
    """With dropout, so that resuming needs the random state, too."""
    torch.manual_seed(seed)
    shape = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**shape, **special, **options}))


def muon(model):
    return gluon.Muon(model, lr=0.05, adjust_lr_fn="match_rms_adamw", adamw_lr=0.02)


def trainer_of(model, folder, optimizer=None, cls_and_kwargs=None, **options):
    defaults = {
        "max_steps": STEPS, "per_device_train_batch_size": 8, "logging_steps": 1, "save_strategy": "no", "seed": 1,
        "report_to": [], "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    return transformers.Trainer(
        model,
        transformers.TrainingArguments(str(folder), **{**defaults, **options}),
        train_dataset=Text(),
        optimizers=(optimizer, None),
        optimizer_cls_and_kwargs=cls_and_kwargs,
    )


def history(trainer, key):
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def run(model, folder, resume=None, **options):
    trainer = trainer_of(model, folder, muon(model), **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Saves after SAVED steps and goes on."""
    folder = tmp_path_factory.mktemp("trainer")
    return run(gpt2(), folder, save_strategy="steps", save_steps=SAVED), folder


def test_roles_and_schedule_arrive(uninterrupted):
    trainer, _ = uninterrupted
    losses, lrs = history(trainer, "loss"), history(trainer, "learning_rate")
    assert losses[-1] < losses[0] - 1
    assert lrs == pytest.approx([0.05 * (1 - step / STEPS) for step in range(STEPS)])  # Trainer's default is linear
    optimizer = trainer.optimizer.optimizer
    rows = [line.split() for line in optimizer.routing_report().splitlines()[1:4]]
    # 4 matrices in each of 2 blocks; wte, to which the head is tied, and wpe; the vectors of 5 norms and 8 layers.
    assert [(row[0], int(row[-2])) for row in rows] == [("hidden", 8), ("embedding", 2), ("*", 18)]
    assert [row[1] == "adamw" for row in rows] == [False, True, True]
    radii = optimizer.effective_radii()
    assert radii["transformer.h.0.mlp.c_fc.weight"] == pytest.approx(lrs[-1])
    assert optimizer.steps_taken == STEPS


def test_a_saved_run_resumes_with_the_same_bits(uninterrupted):
    whole, folder = uninterrupted
    resumed = run(gpt2(seed=5), folder, resume=str(folder / f"checkpoint-{SAVED}"))
    assert history(resumed, "loss") == history(whole, "loss")
    assert same_bits(resumed.model, whole.model)
    assert resumed.optimizer.optimizer.steps_taken == STEPS


def test_a_factory_gets_the_model(uninterrupted, tmp_path):
    keywords = {"lr": 0.05, "adjust_lr_fn": "match_rms_adamw", "adamw_lr": 0.02}
    trainer = trainer_of(gpt2(), tmp_path, cls_and_kwargs=(lambda: gluon.Muon, keywords))
    trainer.train()
    assert same_bits(trainer.model, uninterrupted[0].model)


def test_a_class_gets_groups_without_names_and_refuses(tmp_path):
    trainer = trainer_of(gpt2(), tmp_path, cls_and_kwargs=(gluon.Muon, {"lr": 0.05}))
    with pytest.raises(ValueError, match="is a matrix of shape .* without a name.*Trainer: docs/python.md"):
        trainer.train()


def test_the_guides_lines_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    given, made = [block.replace("max_steps=2000", "max_steps=2") for block in blocks if "Trainer(" in block]
    names = {"transformers": transformers, "gluon": gluon, "model": gpt2(), "data": Text()}
    names["make_model"] = lambda: gpt2()
    exec(given, names)
    assert names["optimizer"].steps_taken == 2
    exec(made, names)
    names["trainer"].train()
    report = names["trainer"].optimizer.optimizer.routing_report()
    assert report == names["optimizer"].routing_report() and "embedding" in report


def test_an_untied_head_is_a_head():
    report = gluon.Gluon(gpt2(tie_word_embeddings=False)).routing_report()
    assert {line.split()[0] for line in report.splitlines()} >= {"embedding", "head"}
    assert "head" not in gluon.Gluon(gpt2()).routing_report()


def test_frozen_weights_stay(tmp_path):
    model = gpt2()
    for parameter in model.transformer.h[0].parameters():
        parameter.requires_grad_(False)
    start = copy.deepcopy(model)
    run(model, tmp_path)
    assert same_bits(model.transformer.h[0], start.transformer.h[0])
    moved = zip(model.transformer.h[1].parameters(), start.transformer.h[1].parameters())
    assert not any(torch.equal(new, old) for new, old in moved)


@pytest.mark.parametrize("kind", ["cosine", "constant_with_warmup", "polynomial"])
def test_schedulers_of_the_arguments(kind, tmp_path):
    trainer = run(gpt2(), tmp_path, lr_scheduler_type=kind, warmup_steps=4)
    lrs = history(trainer, "learning_rate")
    assert lrs[:5] == pytest.approx([0.05 * step / 4 for step in range(5)])
    assert (lrs[-1] == 0.05) == (kind == "constant_with_warmup")


def test_accumulated_gradients_are_those_of_a_larger_batch(tmp_path):
    options = {"max_grad_norm": 0, "max_steps": 3}
    models = []
    for batch, parts in ((8, 1), (2, 4)):
        model = gpt2(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0).double()
        run(model, tmp_path, per_device_train_batch_size=batch, gradient_accumulation_steps=parts, **options)
        models.append(model)
    for one, other in zip(models[0].parameters(), models[1].parameters()):
        assert torch.allclose(one, other, rtol=0, atol=1e-8)


def test_bf16_trains_and_keeps_parameters_in_float32(tmp_path):
    model = gpt2()
    losses = history(run(model, tmp_path, bf16=True), "loss")
    assert losses[-1] < losses[0] - 1
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_clipping_is_mentioned_once(tmp_path):
    """Trainer clips to 1 by default, which gradients of such a model exceed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(gpt2(initializer_range=0.5), tmp_path / "clipped")
        run(gpt2(initializer_range=0.5), tmp_path / "free", max_grad_norm=0)
    said = [str(one.message) for one in caught if str(one.message).startswith("gluon:")]
    assert len(said) == 1 and "had the total length 1, as clip_grad_norm_() leaves them" in said[0]
    assert "unless max_grad_norm=0" in said[0]
