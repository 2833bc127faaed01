"""Load tests of a mesh, or of any OpenAI-compatible server: throughput and latency under load.

Reading order: ``workload`` (the requests and their arrival times), ``generators`` (processes that
send them and measure latencies), ``runs`` (the course of a run and its summary), ``results`` (the
report; docs/load.md explains its schema).
"""
