"""The confidence service: it decides which draft tokens are kept unverified, and when the others
are verified.

Reading order: ``servicer`` (the calls), ``assessor`` (the tokens to keep), ``request_cache`` (the
requests that wait for the target), ``release`` (the end of the wait).
"""
