"""The names, units and buckets of all metrics, the names of spans, and the attributes of both.

Where OpenTelemetry has a convention it is followed, as of: GenAI, semantic-conventions-genai at
004902b (in development); RPC and database, semantic-conventions 1.45. What has none is called
``specmesh.*``. docs/operations.md says what each metric tells an operator. Every attribute of a
metric has few values: no session, no text, and no name that only a request gives.
"""

from __future__ import annotations

from specmesh.serving.instruments import CounterMetric, GaugeMetric, HistogramMetric

# Spans.

GENERATE_SPAN = "specmesh.generate"
"""An answer at its client, resumes included."""
ROUND_SPAN = "specmesh.round"
DRAFT_SPAN = "specmesh.draft"
VERIFY_SPAN = "specmesh.verify"
ASSESS_SPAN = "specmesh.assess"
CANCEL_SPAN = "specmesh.cancel"
COMMIT_SPAN = "specmesh.commit"
EXAMINE_SPAN = "specmesh.examine"

# Attributes.

SERVICE_NAME = "service.name"
SERVICE_INSTANCE = "service.instance.id"
SERVICE_VERSION = "service.version"

OPERATION = "gen_ai.operation.name"
TEXT_COMPLETION = "text_completion"
CHAT = "chat"
PROVIDER = "gen_ai.provider.name"
SPECMESH = "specmesh"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
MAX_TOKENS = "gen_ai.request.max_tokens"
TEMPERATURE = "gen_ai.request.temperature"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
CACHED_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - no secret

RPC_SYSTEM = "rpc.system.name"
GRPC = "grpc"
RPC_METHOD = "rpc.method"
RPC_STATUS = "rpc.response.status_code"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
URL_SCHEME = "url.scheme"

DB_SYSTEM = "db.system.name"
REDIS = "redis"
DB_OPERATION = "db.operation.name"
STORE_COMMAND = "specmesh.store.command"

STRATEGY = "specmesh.strategy"
NUM_VERIFIERS = "specmesh.verifiers"
"""Replicas of the target that were ready when an answer began."""
ACCEPTANCE = "specmesh.acceptance"
REASON = "specmesh.reason"
CANCELLED = "specmesh.cancelled"
RESUMED_FROM = "specmesh.resumed_from"
ROLE = "specmesh.role"
REPLICA = "specmesh.replica"
"""Of a call: the name of the process called, in Kubernetes its pod's; as ``service.instance.id``
of that process's own spans."""
STATE = "specmesh.state"
EJECTION_REASON = "specmesh.ejection.reason"
HEDGE_WON = "specmesh.hedge.won"
SEARCH_OUTCOME = "specmesh.prefix.outcome"
FORWARD_KIND = "specmesh.forward.kind"
FORWARD_WIDTH = "specmesh.forward.width"
FILTER_DECISION = "specmesh.filter.decision"
FILTER_SCORER = "specmesh.filter.scorer"
ROUND = "specmesh.round"
CANCELLED_TASKS = "specmesh.cancelled.tasks"
DRAFT_DEPTH = "specmesh.draft.depth"
DRAFT_TOKENS = "specmesh.draft.tokens"
ACCEPTED = "specmesh.accepted.tokens"
COMMITTED = "specmesh.committed.tokens"
UNCHECKED = "specmesh.unchecked.tokens"
HEDGE = "specmesh.hedge"
CAUSE = "specmesh.cause"
"""Of a call: the event that made the strategy ask for it, as drafted or verified; or start."""
REACTION_MS = "specmesh.reaction_ms"
"""From the arrival of that event until the call."""
RUN_DELAY_MS = "specmesh.run_delay_ms"
"""Of this, how long the process was ready to go on while others had the cores."""
QUEUE_MS = "specmesh.queue_ms"
FORWARD_MS = "specmesh.forward_ms"
HEADS_TOKENS = "specmesh.heads.tokens"
"""Of a verification: how many draft tokens heads have sent with the verdict."""
HEADS_MS = "specmesh.heads_ms"
"""How long they took."""
TREE_NODES = "specmesh.tree.nodes"
"""Of a draft or verification: the numbers of its draft tokens (``traced_tokens``)."""
TREE_PARENTS = "specmesh.tree.parents"
"""The number of the token before each of them, 0 for the beginning."""
TREE_TEXTS = "specmesh.tree.texts"
VERDICT_ACCEPTED = "specmesh.verdict.accepted"
"""The numbers of those that the target accepted."""
VERDICT_AFTER = "specmesh.verdict.after"
"""The number of the token before the target's own."""
VERDICT_NEXT = "specmesh.verdict.next"
"""That of the target's own token."""
VERDICT_RECOVERED = "specmesh.verdict.recovered"
COMMITTED_NODES = "specmesh.committed.nodes"
COMMITTED_KINDS = "specmesh.committed.kinds"
COMMITTED_TEXTS = "specmesh.committed.texts"
FILTER_POSITIONS = "specmesh.filter.positions"
FILTER_FALLBACK = "specmesh.filter.fallback"
FILTER_RELEASED = "specmesh.filter.batch_size"

CERTIFICATE_FILE = "specmesh.certificate.file"
CERTIFICATE_SUBJECT = "specmesh.certificate.subject"

# Buckets.

SECONDS = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
"""From a small model's forward on."""
_RPC_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

# A request, at the orchestrator.

REQUEST_DURATION = HistogramMetric(
    "gen_ai.server.request.duration",
    "s",
    "from a request's arrival to its end, by error.type if it failed",
    (*(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64), *(1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)),
)
TIME_TO_FIRST_TOKEN = HistogramMetric(
    "gen_ai.server.time_to_first_token",
    "s",
    "from a request's arrival to its first new token, if it says one; recorded at its end, by "
    "error.type if it failed then",
    (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
        *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    ),
)
TIME_PER_OUTPUT_TOKEN = HistogramMetric(
    "gen_ai.server.time_per_output_token",
    "s",
    "time of each new token after the first, until the end, by error.type if it failed",
    (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
)
TOKEN_USAGE = HistogramMetric(
    # gen_ai.client.token.usage, but it is a client's: counted here as well, it would be twice.
    "specmesh.token.usage",
    "{token}",
    "tokens of a request, by gen_ai.token.type: of its prompt, or new ones of its answer",
    tuple(float(4**n) for n in range(14)),
)
REQUESTS = CounterMetric(
    "specmesh.requests",
    "{request}",
    "requests that ended, by status and, if they failed, by specmesh.reason (errors.proto)",
)
REQUESTS_RUNNING = GaugeMetric("specmesh.requests.running", "{request}", "answers at work")
REQUESTS_WAITING = GaugeMetric(
    "specmesh.requests.waiting", "{request}", "answers that wait to begin"
)
TOKENS_IN_FLIGHT = GaugeMetric(
    "specmesh.tokens.in_flight",
    "{token}",
    "draft tokens of verifications under way, and for each of these one of the target's own",
)
REQUESTS_ROOM = GaugeMetric(
    "specmesh.requests.room", "{request}", "answers that may be at work at once"
)
RESUMED = CounterMetric(
    "specmesh.requests.resumed",
    "{request}",
    "answers that went on after their stream broke, from the store or from what the client has",
)
NOT_RESUMABLE = CounterMetric(
    "specmesh.sessions.not_resumable",
    "{session}",
    "answers that went out faster than they could be stored, for a time at least",
)
DAMAGED = CounterMetric(
    "specmesh.sessions.damaged",
    "{session}",
    "stored sessions that were not what had been written, and were not used",
)

# Speculation. The names are those of GenerationStats.

DRAFTED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_drafted_tokens",
    "{token}",
    "all tokens that drafters sent, verified or not",
)
VERIFIED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_verified_tokens", "{token}", "draft tokens that the target judged"
)
ACCEPTED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_accepted_tokens", "{token}", "draft tokens that were accepted"
)
WASTED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_wasted_tokens",
    "{token}",
    "tokens drafted in vain: rejected, cancelled or cut off",
)
UNCHECKED_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_unchecked_tokens", "{token}", "draft tokens said without the target"
)
TARGET_TOKENS = CounterMetric(
    "specmesh.spec_decode.num_target_tokens",
    "{token}",
    "positions that the target was asked for, also by verifications that were cancelled",
)
VERIFY_CALLS = CounterMetric(
    "specmesh.spec_decode.num_verify_calls", "{call}", "verifications that were answered"
)

# The mesh, as an orchestrator sees it.

REPLICAS = GaugeMetric(
    "specmesh.replicas",
    "{replica}",
    "replicas by specmesh.role and specmesh.state: ready, down, refused (another model) or "
    "ejected (left out for a while)",
)
EJECTIONS = CounterMetric(
    "specmesh.replica.ejections",
    "{ejection}",
    "replicas left out for a while since they failed or were slow",
)
LOOKUP_FAILURES = CounterMetric(
    "specmesh.lookup.failures",
    "{lookup}",
    "lookups of replicas' names in DNS that failed or found no address",
)
QUARANTINES = CounterMetric(
    "specmesh.quarantined.calls",
    "{call}",
    "calls that broke several replicas in turn and were tried nowhere else",
)
HEDGES = CounterMetric(
    "specmesh.verify.hedges",
    "{call}",
    "second calls for verifications that were late, by whether they came first",
)
PREFIX_SEARCHES = CounterMetric(
    "specmesh.prefix.searches",
    "{search}",
    "questions to Redis who holds a prompt, by specmesh.prefix.outcome: found, unknown, or "
    "unanswered in time",
)
TASK_FAILURES = CounterMetric(
    "specmesh.task.failures", "{task}", "drafts and verifications that failed for good"
)
FILTER_FALLBACKS = CounterMetric(
    "specmesh.filter.fallbacks",
    "{assessment}",
    "assessments that failed, so that the target was asked about every token",
)

# Calls, of every process.

SERVER_CALL_DURATION = HistogramMetric(
    "rpc.server.call.duration", "s", "requests answered here, by method and status", _RPC_SECONDS
)
CLIENT_CALL_DURATION = HistogramMetric(
    "rpc.client.call.duration",
    "s",
    "calls to other services, by method, callee and status",
    _RPC_SECONDS,
)
CALLS_ACTIVE = GaugeMetric(
    "specmesh.rpc.active", "{request}", "requests that are being answered here"
)
CERTIFICATE_EXPIRY = GaugeMetric(
    "specmesh.certificate.expiry",
    "s",
    "when each certificate that the process shows or believes ends, in seconds since 1970, by its "
    "file and subject",
)
STORE_DURATION = HistogramMetric(
    "db.client.operation.duration",
    "s",
    "commands to Redis, by what they do",
    (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0),
)

STORE_REFUSALS = CounterMetric(
    "specmesh.store.refusals",
    "{command}",
    "commands that Redis refused, by the operation that needs them and, if Redis names it, by "
    "specmesh.store.command",
)

# A model's process.

CALL_QUEUE = HistogramMetric(
    "specmesh.queue.duration", "s", "time of a call from arrival to the first forward", SECONDS
)
CALL_FORWARD = HistogramMetric(
    "specmesh.forward.duration", "s", "time of a call spent in forwards", SECONDS
)
COMPUTED_TOKENS = CounterMetric(
    "specmesh.tokens.computed", "{token}", "tokens that went through a forward"
)
CACHED_TOKENS = CounterMetric(
    "specmesh.tokens.cached", "{token}", "prefix tokens whose KV was held"
)
FORWARD_DURATION = HistogramMetric(
    "specmesh.engine.forward.duration", "s", "one forward, whoever shares it", SECONDS
)
BATCH_SIZE = HistogramMetric(
    "specmesh.engine.batch.size",
    "{sequence}",
    "sequences that share a forward",
    tuple(float(1 << n) for n in range(9)),
)
BATCH_TOKENS = HistogramMetric(
    "specmesh.engine.batch.tokens",
    "{token}",
    "tokens of a forward, all together",
    tuple(float(1 << n) for n in range(12)),
)
JOBS = GaugeMetric("specmesh.engine.jobs", "{call}", "calls in the engine's batch")
QUEUE_DEPTH = GaugeMetric("specmesh.engine.queue.depth", "{call}", "calls that wait for the engine")
QUEUE_LIMIT = GaugeMetric(
    "specmesh.engine.queue.limit", "{call}", "calls that may wait; one more is refused"
)
KV_BLOCKS = GaugeMetric(
    "specmesh.kv.blocks",
    "{block}",
    "blocks of the KV cache by specmesh.state: used, cached (may be evicted) or free",
)
KV_SHARED = GaugeMetric("specmesh.kv.blocks.shared", "{block}", "used blocks with several users")
KV_EVICTIONS = CounterMetric(
    "specmesh.kv.evictions", "{block}", "cached blocks that had to make room"
)
KV_LOOKED_UP = CounterMetric(
    "specmesh.kv.prefix.tokens", "{token}", "tokens looked up in the KV cache"
)
KV_HITS = CounterMetric("specmesh.kv.prefix.hits", "{token}", "of these, those that were found")

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
    "what scores were compared with last, by specmesh.filter.scorer; finite ones",
)
FILTER_BATCH_SIZE = HistogramMetric(
    "specmesh.filter.batch.size",
    "{request}",
    "requests released together, counted by the replica that released them",
    tuple(float(1 << n) for n in range(9)),
)
FILTER_WAIT = HistogramMetric(
    "specmesh.filter.wait.duration", "s", "time of a request in the request cache", SECONDS
)

# A request, at the gateway.

HTTP_DURATION = HistogramMetric(
    "http.server.request.duration",
    "s",
    "how long HTTP requests take, streams to their end, by error.type if they failed",
    (*_RPC_SECONDS, 30.0, 60.0),
)
HTTP_ACTIVE = GaugeMetric(
    "http.server.active_requests", "{request}", "HTTP requests being answered"
)
TIME_TO_FIRST_TOKENS = HistogramMetric(
    "specmesh.gateway.time_to_first_tokens",
    "s",
    "from a streaming request's arrival to the first tokens of any of its answers",
    (*_RPC_SECONDS, 30.0, 60.0),
)


def option(name: str) -> str:
    """The attribute for a strategy's option that a request sets: "specmesh.lookahead"."""
    return f"specmesh.{name}"
