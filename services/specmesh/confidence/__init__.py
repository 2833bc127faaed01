"""The confidence service: which draft tokens are kept unverified, and when the others are verified.

Reading order: ``servicer`` (the calls), ``assessor`` (which tokens are kept), ``request_cache``
(where requests for the others wait), ``release`` (until when).
"""
