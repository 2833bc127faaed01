"""A conversation with a model that has a chat template: python chat.py [HOST:PORT]

The shipped model has one if the mesh is started with `specmesh up --chat-template chat.jinja`.
"""

import sys

from specmesh.client import ChatMessage, Client, FailedPrecondition

target = sys.argv[1] if sys.argv[1:] else "127.0.0.1:50051"
client = Client(target)
messages = [ChatMessage("system", "Answer in one sentence.")]
for question in ("What is speculative decoding?", "And what does it cost?"):
    messages.append(ChatMessage("user", question))
    try:
        answer = client.chat(messages, max_tokens=32).complete()
    except FailedPrecondition as error:
        sys.exit(f"{error} [{error.reason}]")
    print(f"> {question}\n{answer.text}")
    messages.append(answer.message)
