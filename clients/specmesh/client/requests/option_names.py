"""Option names: an unknown one is refused with the name that was probably meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

_OURS_BY_THEIRS = {
    "logprobs": "num_top_logprobs",
    "max_completion_tokens": "max_tokens",
    "max_new_tokens": "max_tokens",
    "stop": "stop_strings",
    "timeout": "timeout_s",
    "top_logprobs": "num_top_logprobs",
}
"""Names of our options in OpenAI's API and in transformers."""


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for the first name that is not ``known``."""
    for name in given:
        if name in known:
            continue
        if name == "n":
            raise TypeError("no option 'n': call once per answer, or use generate_many")
        meant = [_OURS_BY_THEIRS.get(name, ""), *get_close_matches(name, known, n=1)]
        for each in meant:
            if each in known:
                raise TypeError(f"no option {name!r}; did you mean {each!r}?")
        raise TypeError(f"no option {name!r}; the options are: {', '.join(sorted(known))}")
