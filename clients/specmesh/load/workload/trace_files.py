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
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

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
        begins_with = opened.read(1)
        opened.seek(0)
        read = _mooncake if begins_with == "{" else _azure
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
    missing = [name for name in _AZURE if name not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"is not a trace: neither Mooncake's JSON lines nor CSV with {_AZURE}")
    for number, row in enumerate(rows, start=2):
        try:
            at, prompt, output = (row[name] for name in _AZURE)
            yield TraceEntry(_timestamp_s(at), max(1, int(prompt)), max(1, int(output)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {number}: {error}") from None


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
            entry = json.loads(line)
            yield TraceEntry(
                entry["timestamp"] / 1e3,
                max(1, int(entry["input_length"])),
                max(1, int(entry["output_length"])),
                tuple(entry.get("hash_ids", ())),
            )
        except KeyError as error:
            raise ValueError(f"line {number}: has no {error}") from None
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {number}: {error}") from None
