"""Services that are not told what to load end at once, and say which option is missing."""

import pytest
from pydantic import ValidationError

from specmesh.drafter.__main__ import DrafterService, DrafterSettings
from specmesh.inference.model import ModelNotLoadable
from specmesh.serving.process.command_line import parse
from specmesh.verifier.__main__ import VerifierService, VerifierSettings


def load_target(name):
    VerifierService(VerifierSettings(model=name)).load()


def load_drafter(name):
    DrafterService(DrafterSettings(model=name)).load()


@pytest.mark.parametrize(
    ("settings", "given", "missing"),
    [
        (
            VerifierSettings,
            [],
            "--model (%s__MODEL): must name a model, a folder or a Hugging Face id",
        ),
        (VerifierSettings, ["--backend", "vllm"], "--model (%s__MODEL): must name"),
        (
            DrafterSettings,
            [],
            "--model (%s__MODEL): must name a model, a folder or a Hugging Face id",
        ),
        (DrafterSettings, ["--backend", "vllm"], "--model (%s__MODEL): must name"),
        (
            DrafterSettings,
            ["--backend", "random"],
            "--tokenizer (%s__TOKENIZER): must name the target's tokenizer",
        ),
        (DrafterSettings, ["--backend", "prompt-lookup"], "--tokenizer (%s__TOKENIZER): must name"),
        (
            DrafterSettings,
            ["--backend", "ngram", "--tokenizer", "t"],
            "--corpus (%s__CORPUS): must name",
        ),
    ],
)
def test_what_is_not_named_is_asked_for_by_its_option(settings, given, missing, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(settings, given, "specmesh serve")
    assert ended.value.code == 2
    variables = settings.model_config["env_prefix"].removesuffix("__")
    assert capsys.readouterr().err.startswith(f"specmesh serve: error: {missing % variables}")


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (VerifierSettings, {"backend": "simulated"}),
        (VerifierSettings, {"backend": "empty"}),
        (DrafterSettings, {"backend": "simulated"}),
        (DrafterSettings, {"backend": "random", "tokenizer": "t"}),
        (DrafterSettings, {"backend": "ngram", "tokenizer": "t", "corpus": "stdlib"}),
    ],
)
def test_backends_without_a_model_need_none(settings, fields):
    try:
        settings(**fields)
    except ValidationError as error:
        pytest.fail(str(error))


@pytest.mark.parametrize("load", [load_target, load_drafter])
def test_a_folder_that_is_not_there_is_not_looked_for_elsewhere(load, tmp_path):
    with pytest.raises(ModelNotLoadable, match=f"there is no folder '{tmp_path}/absent'"):
        load(f"{tmp_path}/absent")
    with pytest.raises(ModelNotLoadable, match=f"the folder '{tmp_path}' is empty"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "meant"), [("ngram", "ngram"), ("ngrm", "ngram"), ("prompt_lookup", "prompt-lookup")]
)
def test_a_kind_of_drafter_given_as_a_model_is_no_id_of_hugging_face(name, meant):
    with pytest.raises(
        ModelNotLoadable, match=f"no model '{name}': did you mean --backend {meant}"
    ):
        load_drafter(name)
