"""Sampling parameters of replicas' requests, which are the same in all calls of an answer."""

from __future__ import annotations

from functools import lru_cache

from specmesh.decoding.sampling import Sampling
from specmesh.serving.codec.wire import read_sampling
from specmesh.v1 import sampling_pb2

_MOST_BYTES = 512
"""The largest message that is kept with its meaning."""


def kept_sampling(message: sampling_pb2.SamplingParameters) -> Sampling:
    """Return what ``read_sampling`` does, without reading the parameters of the latest thousand
    answers more than once."""
    data = message.SerializeToString(deterministic=True)
    return _read(data) if len(data) <= _MOST_BYTES else read_sampling(message)


@lru_cache(maxsize=1024)
def _read(message: bytes) -> Sampling:
    return read_sampling(sampling_pb2.SamplingParameters.FromString(message))
