"""The confidence service: which draft tokens need no target, and when the target is asked.

Reading order: ``servicer`` (what is answered), ``assessor`` (which tokens are kept),
``request_cache`` (where the others wait), ``release`` (until when), ``request_store`` (how
replicas of the service wait together).
"""
