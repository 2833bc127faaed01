"""An engine whose model computes in processes of its own: their death, and their end."""

import asyncio
import threading

from specmesh.inference.engine.engine import Engine
from specmesh.inference.models.simulated.empty import EmptyModel


class Elsewhere(EmptyModel):
    """As if it had processes."""

    is_closed = False

    def on_failure(self, tell):
        self.tell = tell

    def close(self):
        self.is_closed = True


async def test_their_death_breaks_the_engine_and_ends_its_thread_while_nobody_waits():
    model, before = Elsewhere(), threading.enumerate()
    engine = Engine(lambda: model, max_queue=1)
    (thread,) = (each for each in threading.enumerate() if each not in before)
    await engine.ready()
    await asyncio.to_thread(model.tell, "a process has died")
    async with asyncio.timeout(10):
        assert await engine.broken() == "a process has died"
    assert engine.is_broken
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    assert not model.is_closed


async def test_they_end_with_the_engine():
    model = Elsewhere()
    engine = Engine(lambda: model, max_queue=1)
    await engine.ready()
    await asyncio.to_thread(engine.stop)
    assert model.is_closed
    assert not engine.is_broken
