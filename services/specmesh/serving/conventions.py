"""The names of spans, and the attributes of spans and metrics.

Names follow OpenTelemetry's conventions where they exist: for GenAI, semantic-conventions-genai at
004902b (in development); for RPC and databases, semantic-conventions 1.45. Other names begin with
``specmesh.``. Attributes of metrics have low cardinality: no session, no text, and no name that a
request can invent. ``metrics.py`` has the metrics.
"""

from __future__ import annotations

# Spans.

GENERATE_SPAN = "specmesh.generate"
"""A whole answer as its client sees it, including resumes."""
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
"""The number of target replicas that were ready when the answer began."""
ACCEPTANCE = "specmesh.acceptance"
EXPLANATION = "specmesh.explanation"
"""The choices that a strategy has made for an answer, and why, in words."""
REASON = "specmesh.reason"
CANCELLED = "specmesh.cancelled"
RESUMED_FROM = "specmesh.resumed_from"
ROLE = "specmesh.role"
REPLICA = "specmesh.replica"
"""The name of the process that was called, in Kubernetes its pod's: the ``service.instance.id`` of
that process's own spans."""
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
"""The event that made the strategy request the call, such as drafted or verified; or start."""
REACTION_MS = "specmesh.reaction_ms"
"""The time from the arrival of that event to the call."""
RUN_DELAY_MS = "specmesh.run_delay_ms"
"""The part of this time in which the process was runnable but waited for a core."""
QUEUE_MS = "specmesh.queue_ms"
FORWARD_MS = "specmesh.forward_ms"
HEADS_TOKENS = "specmesh.heads.tokens"
"""The number of draft tokens that the heads sent with a verdict."""
HEADS_MS = "specmesh.heads_ms"
"""The time that the heads took."""
TREE_NODES = "specmesh.tree.nodes"
"""The node ids of the draft tokens of a draft or verification (see ``traced_tokens``)."""
TREE_PARENTS = "specmesh.tree.parents"
"""The node id of each draft token's parent; 0 for the root."""
TREE_TEXTS = "specmesh.tree.texts"
VERDICT_ACCEPTED = "specmesh.verdict.accepted"
"""The node ids of the draft tokens that the target accepted."""
VERDICT_AFTER = "specmesh.verdict.after"
"""The node id of the token before the target's own token."""
VERDICT_NEXT = "specmesh.verdict.next"
"""The node id of the target's own token."""
VERDICT_RECOVERED = "specmesh.verdict.recovered"
COMMITTED_NODES = "specmesh.committed.nodes"
COMMITTED_KINDS = "specmesh.committed.kinds"
COMMITTED_TEXTS = "specmesh.committed.texts"
FILTER_POSITIONS = "specmesh.filter.positions"
FILTER_FALLBACK = "specmesh.filter.fallback"
FILTER_RELEASED = "specmesh.filter.batch_size"

CERTIFICATE_FILE = "specmesh.certificate.file"
CERTIFICATE_SUBJECT = "specmesh.certificate.subject"


def option(name: str) -> str:
    """Return the attribute for a strategy's option, such as "specmesh.lookahead"."""
    return f"specmesh.{name}"
