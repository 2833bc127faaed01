"""Recorded traffic, the arrival times and lengths of requests, in two public formats.

- Azure's LLM inference traces, CSV with ``TIMESTAMP,ContextTokens,GeneratedTokens``
  (github.com/Azure/AzurePublicDataset; Patel et al., "Splitwise", ISCA 2024).
- Mooncake's, JSON lines with ``timestamp`` in milliseconds, ``input_length``, ``output_length``
  and ``hash_ids``, equal for equal blocks of 512 tokens (github.com/kvcache-ai/Mooncake; Qin et
  al., "Mooncake", FAST 2025).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specmesh.load.workload.lengths import LONGEST

MOONCAKE_BLOCK_TOKENS = 512

_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """A recorded request, ``at_s`` seconds after the first one."""

    at_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    blocks: tuple[int, ...] = ()
    """Ids of the prompt's blocks of ``MOONCAKE_BLOCK_TOKENS`` tokens; empty if unknown."""


def read_trace(file: Path) -> tuple[TraceEntry, ...]:
    """Return the requests in ``file``, sorted by time. Raises OSError, and ValueError with the
    place of the error."""
    with file.open(encoding="utf-8-sig", newline="") as opened:
        begins_with = next((line.lstrip() for line in opened if line.strip()), "")
        opened.seek(0)
        read = _mooncake if begins_with.startswith("{") else _azure
        entries = sorted(read(opened), key=lambda entry: entry.at_s)
    if not entries:
        raise ValueError(f"{file} has no requests")
    first = entries[0].at_s
    return tuple(
        TraceEntry(each.at_s - first, each.num_prompt_tokens, each.num_output_tokens, each.blocks)
        for each in entries
    )


def _azure(lines: Iterator[str]) -> Iterator[TraceEntry]:
    rows = csv.DictReader(lines)
    try:
        while rows.fieldnames == []:  # a blank line, which is read as names, and is to be read over
            rows.fieldnames = None
        missing = [name for name in _AZURE if name not in (rows.fieldnames or ())]
        if not missing:
            for row in rows:
                at, prompt, output = (row[name] for name in _AZURE)
                yield TraceEntry(_timestamp_s(at), _num_tokens(prompt), _num_tokens(output))
    except (csv.Error, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None
    if missing:
        raise ValueError(f"is not a trace: neither Mooncake's JSON lines nor CSV with {_AZURE}")


def _timestamp_s(text: str) -> float:
    """Return the seconds since 1970 of a time of Azure, in UTC if it names no offset."""
    # Azure writes seven digits after the point, of which Python keeps six.
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _mooncake(lines: Iterator[str]) -> Iterator[TraceEntry]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _mooncake_entry(json.loads(line))
        except KeyError as error:
            raise ValueError(f"line {number}: has no {error}") from None
        except RecursionError:
            raise ValueError(f"line {number}: is nested too deeply") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"line {number}: {error}") from None


def _mooncake_entry(found: Mapping[str, Any]) -> TraceEntry:
    at_s = found["timestamp"] / 1e3
    if not math.isfinite(at_s):
        raise ValueError(f"timestamp must be a finite number, not {found['timestamp']}")
    num_prompt_tokens = _num_tokens(found["input_length"])
    blocks = tuple(found.get("hash_ids", ()))
    most = len(blocks) * MOONCAKE_BLOCK_TOKENS
    if blocks and num_prompt_tokens > most:
        raise ValueError(f"hash_ids has the blocks of {most} tokens, of {num_prompt_tokens}")
    return TraceEntry(at_s, num_prompt_tokens, _num_tokens(found["output_length"]), blocks)


def _num_tokens(found: str | float) -> int:
    number = int(found)
    if number > LONGEST:
        raise ValueError(f"{number} tokens are more than {LONGEST}")
    return max(1, number)
