"""A batch of prompts, eight at a time, with answers in their order:
python batch.py [HOST:PORT] < prompts.txt > answers.jsonl"""

import json
import sys

from specmesh.client import Client, SpecmeshError

target = sys.argv[1] if sys.argv[1:] else "127.0.0.1:50051"
prompts = [line.rstrip("\n") for line in sys.stdin]

with Client(target) as client:
    answers = client.generate_many(prompts, concurrency=8, temperature=0, max_tokens=32)
for prompt, answer in zip(prompts, answers, strict=True):
    if isinstance(answer, SpecmeshError):
        print(json.dumps({"prompt": prompt, "error": str(answer)}))
    else:
        print(json.dumps({"prompt": prompt, "text": answer.text}))
