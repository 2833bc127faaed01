"""The names, units and buckets of all metrics.

Names follow OpenTelemetry's conventions as ``conventions.py`` says. docs/operations.md explains
each metric to operators.
"""

from __future__ import annotations

from specmesh.serving.instruments import CounterMetric, GaugeMetric, HistogramMetric

# Buckets.

SECONDS = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
"""Buckets that begin below the duration of a small model's forward pass."""
_RPC_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

# A request, at the orchestrator.

REQUEST_DURATION = HistogramMetric(
    "gen_ai.server.request.duration",
    "s",
    "time from a request's arrival to its end, by error.type if it failed",
    (*(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64), *(1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)),
)
TIME_TO_FIRST_TOKEN = HistogramMetric(
    "gen_ai.server.time_to_first_token",
    "s",
    "time from a request's arrival to its first new token, if it produces one; recorded at the "
    "request's end, by error.type if it failed after that token",
    (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
        *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    ),
)
TIME_PER_OUTPUT_TOKEN = HistogramMetric(
    "gen_ai.server.time_per_output_token",
    "s",
    "time per new token after the first, by error.type if the request failed",
    (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
)
TOKEN_USAGE = HistogramMetric(
    # OpenTelemetry's gen_ai.client.token.usage belongs to clients: with the same name here, tokens
    # would count twice.
    "specmesh.token.usage",
    "{token}",
    "tokens of a request, by gen_ai.token.type: input (its prompt) or output (its new tokens)",
    tuple(float(4**n) for n in range(14)),
)
REQUESTS = CounterMetric(
    "specmesh.requests",
    "{request}",
    "requests that ended, by status and, if they failed, by specmesh.reason (errors.proto)",
)
REQUESTS_RUNNING = GaugeMetric("specmesh.requests.running", "{request}", "answers being generated")
REQUESTS_WAITING = GaugeMetric(
    "specmesh.requests.waiting", "{request}", "answers waiting in the queue"
)
TOKENS_IN_FLIGHT = GaugeMetric(
    "specmesh.tokens.in_flight",
    "{token}",
    "tokens of verifications in flight: their draft tokens, and one target token for each",
)
REQUESTS_ROOM = GaugeMetric(
    "specmesh.requests.room", "{request}", "limit on answers generated concurrently"
)
RESUMED = CounterMetric(
    "specmesh.requests.resumed",
    "{request}",
    "answers resumed after their stream broke, from the store or from the client's own tokens",
)
NOT_RESUMABLE = CounterMetric(
    "specmesh.sessions.not_resumable",
    "{session}",
    "answers that were sent faster than they could be stored, at least for a time",
)
DAMAGED = CounterMetric(
    "specmesh.sessions.damaged",
    "{session}",
    "stored sessions that differed from what was written, and were not used",
)

# Speculation, with the names of GenerationStats.

DRAFTED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_drafted_tokens",
    "{token}",
    "all tokens that drafters sent, verified or not, and the second choices of verifications",
)
VERIFIED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_verified_tokens",
    "{token}",
    "draft tokens that the target verified, second choices not counted",
)
ACCEPTED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_accepted_tokens", "{token}", "draft tokens that the target accepted"
)
WASTED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_wasted_tokens",
    "{token}",
    "draft tokens that were not used: rejected, cancelled or cut off",
)
UNCHECKED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_unchecked_tokens",
    "{token}",
    "draft tokens sent to clients without verification by the target",
)
TARGET_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_target_tokens",
    "{token}",
    "positions that the target was asked to compute, including cancelled verifications",
)
VERIFY_CALLS = CounterMetric(
    "specmesh.spec_decode.num_verify_calls", "{call}", "verifications that were answered"
)

# The mesh, as an orchestrator sees it.

REPLICAS = GaugeMetric(
    "specmesh.replicas",
    "{replica}",
    "replicas by specmesh.role and specmesh.state: ready, down, refused (they serve another "
    "model) or ejected (not called for a while)",
)
EJECTIONS = CounterMetric(
    "specmesh.replica.ejections",
    "{ejection}",
    "times that a replica was ejected for a while because it failed or was slow",
)
LOOKUP_FAILURES = CounterMetric(
    "specmesh.lookup.failures",
    "{lookup}",
    "DNS lookups of replicas' names that failed or found no address",
)
QUARANTINES = CounterMetric(
    "specmesh.quarantined.calls",
    "{call}",
    "calls that broke several replicas in turn and were not retried on others",
)
HEDGES = CounterMetric(
    "specmesh.verify.hedges",
    "{call}",
    "hedged calls: second calls for late verifications, by whether they answered first",
)
PREFIX_SEARCHES = CounterMetric(
    "specmesh.prefix.searches",
    "{search}",
    "queries to Redis for the replicas that hold a prompt, by specmesh.prefix.outcome: found, "
    "unknown, or unanswered in time",
)
TASK_FAILURES = CounterMetric(
    "specmesh.task.failures", "{task}", "drafts and verifications that failed for good"
)
FILTER_FALLBACKS = CounterMetric(
    "specmesh.filter.fallbacks",
    "{assessment}",
    "assessments that failed, so that the target verified every token",
)

# Calls of every process.

SERVER_CALL_DURATION = HistogramMetric(
    "rpc.server.call.duration",
    "s",
    "duration of calls that this process answered, by method and status",
    _RPC_SECONDS,
)
CLIENT_CALL_DURATION = HistogramMetric(
    "rpc.client.call.duration",
    "s",
    "duration of calls to other services, by method and status",
    _RPC_SECONDS,
)
CALLS_ACTIVE = GaugeMetric(
    "specmesh.rpc.active", "{request}", "requests that this process is answering"
)
CERTIFICATE_EXPIRY = GaugeMetric(
    "specmesh.certificate.expiry",
    "s",
    "expiry of each certificate that the process presents or trusts, in seconds since 1970, by "
    "file and subject",
)
STORE_DURATION = HistogramMetric(
    "db.client.operation.duration",
    "s",
    "duration of commands to Redis, by operation",
    (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0),
)

STORE_REFUSALS = CounterMetric(
    "specmesh.store.refusals",
    "{command}",
    "commands that Redis refused, by operation and, if Redis names the command, by "
    "specmesh.store.command",
)

# Processes that run a model.

CALL_QUEUE = HistogramMetric(
    "specmesh.queue.duration",
    "s",
    "time from a call's arrival to its first forward pass",
    SECONDS,
)
CALL_FORWARD = HistogramMetric(
    "specmesh.forward.duration", "s", "time that a call spends in forward passes", SECONDS
)
COMPUTED_TOKENS = CounterMetric(
    "specmesh.tokens.computed", "{token}", "tokens computed by forward passes"
)
CACHED_TOKENS = CounterMetric(
    "specmesh.tokens.cached", "{token}", "prefix tokens found in the KV cache"
)
FORWARD_DURATION = HistogramMetric(
    "specmesh.engine.forward.duration", "s", "duration of a forward pass of a batch", SECONDS
)
BATCH_SIZE = HistogramMetric(
    "specmesh.engine.batch.size",
    "{sequence}",
    "sequences per forward pass",
    tuple(float(1 << n) for n in range(9)),
)
BATCH_TOKENS = HistogramMetric(
    "specmesh.engine.batch.tokens",
    "{token}",
    "tokens per forward pass, over all sequences",
    tuple(float(1 << n) for n in range(12)),
)
JOBS = GaugeMetric("specmesh.engine.jobs", "{call}", "calls in the engine's batch")
QUEUE_DEPTH = GaugeMetric("specmesh.engine.queue.depth", "{call}", "calls waiting for the engine")
QUEUE_LIMIT = GaugeMetric(
    "specmesh.engine.queue.limit", "{call}", "limit on waiting calls, above which calls are refused"
)
KV_BLOCKS = GaugeMetric(
    "specmesh.kv.blocks",
    "{block}",
    "blocks of the KV cache by specmesh.state: used, cached (may be evicted) or free",
)
KV_SHARED = GaugeMetric(
    "specmesh.kv.blocks.shared", "{block}", "used blocks that several sequences share"
)
KV_EVICTIONS = CounterMetric(
    "specmesh.kv.evictions", "{block}", "cached blocks evicted to make room"
)
KV_LOOKED_UP = CounterMetric(
    "specmesh.kv.prefix.tokens", "{token}", "tokens looked up in the KV cache"
)
KV_HITS = CounterMetric("specmesh.kv.prefix.hits", "{token}", "tokens found in the KV cache")

# The confidence service.

FILTER_TOKENS = CounterMetric(
    "specmesh.filter.tokens",
    "{token}",
    "draft tokens decided on, by specmesh.filter.decision: kept or escalated",
)
FILTER_ASSESSED = CounterMetric(
    "specmesh.filter.assessed", "{token}", "draft tokens that were scored"
)
FILTER_THRESHOLD = GaugeMetric(
    "specmesh.filter.threshold",
    "1",
    "the last finite threshold for scores, by specmesh.filter.scorer",
)
FILTER_BATCH_SIZE = HistogramMetric(
    "specmesh.filter.batch.size",
    "{request}",
    "requests released together, recorded by the replica that released them",
    tuple(float(1 << n) for n in range(9)),
)
FILTER_WAIT = HistogramMetric(
    "specmesh.filter.wait.duration", "s", "time a request spends in the request cache", SECONDS
)

# A request, at the gateway.

HTTP_DURATION = HistogramMetric(
    "http.server.request.duration",
    "s",
    "duration of HTTP requests, streams to their end, by error.type if they failed",
    (*_RPC_SECONDS, 30.0, 60.0),
)
HTTP_ACTIVE = GaugeMetric(
    "http.server.active_requests", "{request}", "HTTP requests being answered"
)
CONNECTIONS_REFUSED = CounterMetric(
    "specmesh.gateway.connections.refused",
    "{connection}",
    "connections refused because there were too many that were not idle",
)
GATEWAY_SERVED = GaugeMetric(
    "specmesh.gateway.served",
    "{gateway}",
    "1 if an orchestrator served the gateway when it was last probed, else 0",
)
TIME_TO_FIRST_TOKENS = HistogramMetric(
    "specmesh.gateway.time_to_first_tokens",
    "s",
    "time from a streaming request's arrival to the first tokens of any of its answers",
    (*_RPC_SECONDS, 30.0, 60.0),
)
