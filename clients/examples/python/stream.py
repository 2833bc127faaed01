"""An answer, printed as it arrives: python stream.py [HOST:PORT]"""

import sys

from specmesh.client import Client

target = sys.argv[1] if sys.argv[1:] else "127.0.0.1:50051"
client = Client(target)
stream = client.generate("def read_config(path):", temperature=0, max_tokens=32)
for chunk in stream:
    print(chunk.text, end="", flush=True)
print()
print(stream.stats, file=sys.stderr)
