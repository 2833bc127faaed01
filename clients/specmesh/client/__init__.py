"""The client SDK: typed, asynchronous or blocking, with streams that survive a lost orchestrator.

::

    async with AsyncClient("127.0.0.1:50051") as client:
        async for chunk in client.generate("def fibonacci(", max_tokens=64):
            print(chunk.text, end="")

Reading order: ``client`` (the calls), ``answers/stream`` (an answer), ``answers/resumable``
(recovery when its call breaks), ``connections/status`` and ``errors``.
"""

from specmesh.client.answers.messages import MessageDelta, ToolCallDelta
from specmesh.client.answers.scores import TextScore
from specmesh.client.answers.served_models import Model, ServedModel, Strategy
from specmesh.client.answers.sessions import (
    SavedSession,
    Session,
    SessionState,
)
from specmesh.client.answers.stream import (
    GenerationStream,
)
from specmesh.client.answers.values import (
    ChatPrompt,
    Chunk,
    FinishReason,
    GenerationResult,
    GenerationStats,
    TokenKind,
    TokenLogprob,
    TokenLogprobs,
)
from specmesh.client.client import (
    AsyncClient,
)
from specmesh.client.connections.credentials import (
    Tls,
    TokenFile,
)
from specmesh.client.connections.timeouts import (
    Timeouts,
)
from specmesh.client.errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidRequest,
    LimitReached,
    NotFound,
    OutOfRange,
    Overloaded,
    PermissionDenied,
    ResourceExhausted,
    SessionCancelled,
    SessionTaken,
    SpecmeshError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unknown,
)
from specmesh.client.hooks import (
    BrokenCall,
    Ended,
    Hooks,
)
from specmesh.client.requests.build import ChatOptions, GenerateOptions, TemplateOptions
from specmesh.client.requests.chats import ChatMessage, ToolCall, ToolChoice
from specmesh.client.requests.grammar import Grammar
from specmesh.client.requests.sampling import AcceptanceMode
from specmesh.client.requests.speculation import Filter
from specmesh.client.sync import BlockingStream, Client, ClientOptions

__all__ = [
    "Aborted",
    "AcceptanceMode",
    "AlreadyExists",
    "AsyncClient",
    "BlockingStream",
    "BrokenCall",
    "Cancelled",
    "ChatMessage",
    "ChatOptions",
    "ChatPrompt",
    "Chunk",
    "Client",
    "ClientOptions",
    "DataLoss",
    "DeadlineExceeded",
    "Ended",
    "FailedPrecondition",
    "FieldViolation",
    "Filter",
    "FinishReason",
    "GenerateOptions",
    "GenerationResult",
    "GenerationStats",
    "GenerationStream",
    "Grammar",
    "Hooks",
    "Internal",
    "InvalidRequest",
    "LimitReached",
    "MessageDelta",
    "Model",
    "NotFound",
    "OutOfRange",
    "Overloaded",
    "PermissionDenied",
    "ResourceExhausted",
    "SavedSession",
    "ServedModel",
    "Session",
    "SessionCancelled",
    "SessionState",
    "SessionTaken",
    "SpecmeshError",
    "Strategy",
    "TemplateOptions",
    "TextScore",
    "Timeouts",
    "Tls",
    "TokenFile",
    "TokenKind",
    "TokenLogprob",
    "TokenLogprobs",
    "ToolCall",
    "ToolCallDelta",
    "ToolChoice",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
]
