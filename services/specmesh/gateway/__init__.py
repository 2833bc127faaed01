"""The gateway: an OpenAI-compatible HTTP API, which calls orchestrators through the SDK.

Reading order: ``app`` (the routes), ``parameters`` (which of OpenAI's parameters are supported),
``calls`` (a body becomes a request), ``answers`` (a request becomes streams of the mesh),
``completions`` and ``chats`` (answers become responses), ``sse`` and ``errors``.
"""
