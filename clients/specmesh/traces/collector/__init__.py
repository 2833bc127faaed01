"""The trace collector: it receives spans over OTLP, samples traces at the tail, and stores them.

Reading order: ``sampling`` (the decision; pure), ``buffer`` (spans that wait for it; pure),
``arrival`` (the form of spans in both), ``otlp_grpc`` and ``otlp_http`` (the receivers),
``storing`` (the writing thread), ``__main__`` (the process).
"""
