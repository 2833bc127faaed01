"""One client in several event loops, each with connections of its own."""

import asyncio

from specmesh.client.connections.targets import ClientTargets


class ForgottenLoop:
    """A closed event loop that another thread forgets just now."""

    def __init__(self, targets):
        self._targets = targets

    def is_closed(self):
        del self._targets[self]
        return True


def test_closed_loops_are_forgotten_by_several_threads_at_a_time():
    client = ClientTargets((), settings=None)
    client._targets[ForgottenLoop(client._targets)] = None

    async def targets_here():
        return client.here()

    targets = asyncio.run(targets_here())
    assert list(client._targets.values()) == [targets]
