"""The gateway: an OpenAI-compatible door over HTTP, which calls orchestrators through the SDK.

Reading order: ``app`` (the routes), ``parameters`` (what of OpenAI's calls there is here),
``requests`` (a body becomes a request), ``answers`` (a request becomes answers of the mesh),
``completions`` and ``chats`` (answers become responses), ``sse`` and ``errors``.
"""
