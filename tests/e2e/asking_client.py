"""A client: asks as its arguments say, prints the tokens of each answer, a line each."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from specmesh.client import AsyncClient


async def main(targets: list[str], prompt: str, asked: list[dict[str, Any]]) -> None:
    for target in targets:
        async with AsyncClient(target) as client:
            for options in asked:
                stream = client.generate(prompt, **options)
                await stream
                sys.stdout.write(json.dumps(stream.result.token_ids) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*map(json.loads, sys.argv[1:])))
