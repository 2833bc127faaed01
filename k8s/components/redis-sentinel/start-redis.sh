# Start Redis. Who leads is written in its own file, which it rewrites whenever a Sentinel changes
# that; a leader that was replaced while it was away is told so when it is back. At the very
# beginning the first pod leads.
set -eu
file=/data/redis.conf
if [ ! -e "$file" ]; then
  case "$POD_NAME" in
    redis-0) : > "$file" ;;
    *) echo "replicaof redis-0.redis 6379" > "$file" ;;
  esac
fi
# What is acknowledged is on disk here and known to a replica, so that a primary that was cut off
# takes no tokens that a failover would lose; and nothing is evicted.
exec valkey-server "$file" \
  --bind "$POD_IP" --protected-mode no --port 6379 --dir /data \
  --replica-announce-ip "$POD_NAME.redis" \
  --appendonly yes --appendfsync always --save "" \
  --min-replicas-to-write 1 --min-replicas-max-lag 10 \
  --maxmemory-policy noeviction --maxmemory 512mb
