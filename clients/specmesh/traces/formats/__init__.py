"""File formats of traces: the JSON of OTLP, Jaeger and Tempo, and Chrome's events for Perfetto.

Inside the program all traces are OTLP messages; ``files`` detects the format of a file.
"""
