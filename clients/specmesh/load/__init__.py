"""Load tests: how much a mesh, or any server of OpenAI's API, bears, and at which latency.

Reading order: ``workload`` (what is sent), ``arrivals`` and ``conversations`` (when, and what
about), ``generator`` (sends it and takes the times), ``fleet`` (several of them), ``summary``
(what came out), ``report`` (its schema; docs/load.md explains it).
"""
