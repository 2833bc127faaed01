#!/usr/bin/env bash
# Call a mesh from a shell: grpcurl.sh [HOST:PORT] [PROMPT]
set -euo pipefail
target=${1:-127.0.0.1:50051}
prompt=${2:-def fibonacci(n):}

call() { grpcurl -plaintext -d "$2" "$target" "specmesh.v1.GenerationService/$1"; }

# Python quotes the prompt, which may have quotes, backslashes and line breaks.
text=$(python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$prompt")
request="{\"text\": $text, \"sampling\": {\"temperature\": 0}, \"stopping\": {\"max_tokens\": 16}}"

grpcurl -plaintext "$target" list
call ListModels '{}'
call Generate "$request"
call Complete "{\"request\": $request}"
