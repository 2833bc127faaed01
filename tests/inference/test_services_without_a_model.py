"""Services that are not told what to load end at once, and say which option is missing."""

import pytest
from pydantic import ValidationError

from specmesh.drafter.__main__ import DrafterSettings
from specmesh.serving.command_line import parse
from specmesh.verifier.__main__ import VerifierSettings


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
