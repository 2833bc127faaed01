"""What clients see of a Redis failover: streams while Sentinel replaces the primary.

Reading order: ``group`` (primary, replicas and Sentinels), ``run`` (streams and the fault),
``streams`` (what one stream's reader sees), ``report``.
"""
