"""The table of limits in docs/protocol.md says what the orchestrator checks."""

import re
from pathlib import Path
from string import Formatter

import pytest
from tests.decoding.test_sampling import WRONG
from tests.fuzz import names_a_field

from specmesh.orchestrator.admission import request_limits as most
from specmesh.v1 import generation_pb2, served_model_pb2

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
SECTION = TEXT.partition("## Limits\n")[2].partition("\n## ")[0]
TABLE = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", SECTION, re.MULTILINE))
CHECKED = {
    "a message": "{MAX_REQUEST_BYTES} bytes",
    "a call's metadata": "{MAX_METADATA_BYTES} bytes",
    "`sampling.temperature`": "0 to {MAX_TEMPERATURE:g}",
    "`sampling.seed`": "0 to 2^{SEED_BITS} - 1",
    "`sampling.logit_bias`": "{MAX_LISTED_TOKENS} tokens, each -{MAX_LOGIT_BIAS:g} to "
    "{MAX_LOGIT_BIAS:g}",
    "`sampling.allowed_token_ids`, `sampling.banned_token_ids`": "{MAX_LISTED_TOKENS}",
    "`sampling.banned_sequences`": (
        "{MAX_BANNED_SEQUENCES}, each of 1 to {MAX_BANNED_SEQUENCE} tokens, those of `bad_words` "
        "included"
    ),
    "`sampling.bad_words`": "{MAX_BAD_WORDS}, each of 1 to {MAX_BAD_WORD_CHARS} characters",
    "`sampling.grammar`": "{MAX_GRAMMAR_BYTES} bytes of source",
    "`stopping.stop_token_ids`": "{MAX_STOP_TOKENS}",
    "`stopping.stop_strings`": (
        "{MAX_STOP_STRINGS}, each of 1 to {MAX_STOP_STRING_CHARS} characters"
    ),
    "`speculation.lookahead`": "1 to {MAX_LOOKAHEAD}",
    "`speculation.num_branches`": "1 to {MAX_BRANCHES}",
    "`speculation.width`": "1 to {MAX_WIDTH}",
    "`num_top_logprobs`": "0 to {MAX_TOP_LOGPROBS}",
    "`chat.messages`": "1 to {MAX_MESSAGES}",
    "`chat.template_arguments`": (
        "{MAX_ARGUMENT_BYTES} bytes, its numbers finite, "
        "{MAX_ARGUMENT_DEPTH} lists or structs in one another"
    ),
    "`chat.tools`": "{MAX_TOOLS}, together {MAX_TOOL_BYTES} bytes",
    "JSON in `chat.tools`": (
        "an object, its numbers finite, {MAX_JSON_DEPTH} lists or objects in one another"
    ),
    "`format.arguments`": "{MAX_ARGUMENTS}",
    "`request_id`": "{MAX_REQUEST_ID_CHARS} characters",
    "`cache_salt`": "{MAX_CACHE_SALT_CHARS} characters",
    "`session_id`": "1 to {MAX_SESSION_ID_CHARS} characters",
    "`resume_token`": "1 to {MAX_RESUME_TOKEN_BYTES} bytes",
    "`epoch`": "1 to {MAX_EPOCH}",
}
REQUESTS = (
    generation_pb2.GenerateRequest,
    generation_pb2.ResumeRequest,
    served_model_pb2.ListModelsRequest,
)


@pytest.mark.parametrize("field", CHECKED)
def test_documented_limit_is_the_one_that_is_checked(field):
    said = TABLE[field].partition(", or what")[0]
    assert said == CHECKED[field].format_map(vars(most))


def test_every_limit_is_documented():
    named = {name for said in CHECKED.values() for _, name, _, _ in Formatter().parse(said)}
    assert named - {None} == set(most.__all__)


def test_every_range_of_sampling_is_documented():
    for name, _ in WRONG:
        assert f"`sampling.{name}`" in " ".join(TABLE)


def test_documented_fields_exist():
    for path in re.findall(r"`([a-z_.]+)`", " ".join(TABLE)):
        assert any(names_a_field(request.DESCRIPTOR, path) for request in REQUESTS), path
