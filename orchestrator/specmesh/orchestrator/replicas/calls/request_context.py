"""The state that all calls of one request share."""

from __future__ import annotations

from contextvars import Context, copy_context
from dataclasses import KW_ONLY, dataclass, field

from specmesh.decoding.predict.thresholds import FilterOptions
from specmesh.decoding.sampling import Sampling
from specmesh.orchestrator.replicas.calls.judged_logprobs import JudgedLogprobs
from specmesh.orchestrator.replicas.calls.traced_tokens import TracedTokens
from specmesh.orchestrator.replicas.need import ANY, Need
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.serving.codec.wire import write_sampling
from specmesh.serving.telemetry.pipeline import is_recorded
from specmesh.v1 import sampling_pb2


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The state that all calls of one request share, from its first command to its last.

    ``CommandContext`` is the state of the request when one command was issued.
    """

    mesh: ReplicaPools
    prefix: CommittedPrefix
    """The committed tokens, which grow with the answer."""
    sampling: Sampling
    _: KW_ONLY
    vocab_size: int
    deadline: float
    """Deadline of the request, by the event loop's clock."""
    need: Need = ANY
    """Requirements on the replicas that verify, beside the room for a call's tokens."""
    epoch: int = 1
    """Epoch of the session."""
    filter_options: FilterOptions = field(default_factory=FilterOptions)
    logprobs: JudgedLogprobs | None = None
    """Learns from every verification; None if no log-probabilities are wanted."""
    num_node_logprobs: int | None = None
    """The number of likeliest tokens at each node of a tree that is scored; None if trees are
    drafts."""
    tokens: TracedTokens | None = None
    """Numbers the tokens in the request's trace; None if the trace is not recorded."""
    chunk_interval_s: float = 0.0
    """The time for which tokens may wait for those after them."""
    stops_early: bool = False
    """True if the answer may end with a token or text that replicas don't know, so that they would
    decode on behind it while tokens wait there."""
    recorded: bool = field(default_factory=is_recorded)
    """True if the request's spans are recorded."""
    context: Context = field(default_factory=copy_context, repr=False)
    """The context in which to handle what a replica says: it arrives in that of a call that many
    requests share."""
    sampling_message: sampling_pb2.SamplingParameters = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_message", write_sampling(self.sampling))

    @property
    def num_top_logprobs(self) -> int | None:
        """The number of likeliest tokens that verdicts list; None for no log-probabilities."""
        return None if self.logprobs is None else self.logprobs.num_top
