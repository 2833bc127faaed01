"""A replica of the request cache with one request, ``stranger.py REDIS_URL WINDOW_S``: says the
size of the batch with which it is released."""

import asyncio
import sys

from specmesh.confidence.release import Escalation
from specmesh.confidence.request_cache import RequestCache
from specmesh.confidence.request_store import RequestStore


async def main(url, window_s):
    store = RequestStore.from_url(url, max_batch=2, timeout_s=20)
    cache = RequestCache(store, window_s=window_s, max_batch=2)
    await cache.start()
    cache.see("nobody")
    with cache.enter(Escalation("stranger", 1, b"", -1.0)) as ticket:
        released = await ticket.released
    sys.stdout.write(f"{released.batch_size}\n")
    sys.stdout.flush()
    await cache.stop()


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
