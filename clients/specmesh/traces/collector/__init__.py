"""Receives the spans of a mesh over OTLP, decides which traces are kept, and stores those.

Reading order: ``sampling`` (which traces: pure), ``buffer`` (spans wait there for the decision:
pure), ``arrival`` (what the two see of a span), ``otlp_grpc`` and ``otlp_http`` (how spans come
in), ``storing`` (the thread that writes), ``__main__`` (the process).
"""
