"""Two concurrent answers in one event loop: python stream_async.py [HOST:PORT]"""

import asyncio
import sys

from specmesh.client import AsyncClient

target = sys.argv[1] if sys.argv[1:] else "127.0.0.1:50051"


async def main() -> None:
    async with AsyncClient(target) as client:
        results = await asyncio.gather(
            client.generate("def read_config(path):", temperature=0, max_tokens=32),
            client.generate("import os", temperature=0.8, seed=7, max_tokens=32),
        )
    for result in results:
        print(result.text)
        print(f"{result.strategy}, acceptance {result.stats.acceptance}", file=sys.stderr)


asyncio.run(main())
