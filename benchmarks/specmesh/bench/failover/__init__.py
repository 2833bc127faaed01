"""``specmesh bench failover``: streams while Sentinel replaces the primary of a Redis.

Reading order: ``group`` (primary, replicas and Sentinels), ``run`` (streams and the fault),
``streams`` (what one stream's reader sees), ``report``.
"""
