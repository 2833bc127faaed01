# Start Redis. Who leads is written in its own file, which it rewrites whenever a Sentinel changes
# that; a leader that was replaced while it was away is told so when it is back. At the very
# beginning the first pod leads.
set -eu
umask 077
file=/data/redis.conf
if [ ! -e "$file" ]; then
  case "$POD_NAME" in
    redis-0) : > "$file" ;;
    *) echo "replicaof redis-0.redis 6379" > "$file" ;;
  esac
fi
# With redis-sentinel-tls: TLS, and a user for each who calls (docs/security.md); whoever has no
# password may ask whether it is up. Of passwords only hashes are written, and not to a disk.
if [ -n "${REDIS_PASSWORD:-}" ]; then
  hash() { printf %s "$1" | sha256sum | cut -d " " -f 1; }
  cat > /run/redis/users.acl <<ACL
user default on nopass resetkeys resetchannels -@all +ping
user specmesh on #$(hash "$REDIS_PASSWORD") ~specmesh:* +evalsha +script|load +ping +get +set +getrange +append +strlen +hmget +hset +hdel +del +expire +pttl +time +zadd +zrevrangebyscore +zremrangebyscore +zremrangebyrank +pexpire +select +info +config|get
user replica on #$(hash "$REDIS_INTERNAL_PASSWORD") +psync +replconf +ping
user sentinel on #$(hash "$REDIS_INTERNAL_PASSWORD") allchannels +multi +slaveof +replicaof +ping +exec +subscribe +config|rewrite +role +publish +info +client|setname +client|kill +script|kill
ACL
  set -- --port 0 --tls-port 6379 --tls-replication yes --tls-auth-clients no \
    --tls-cert-file /etc/specmesh/tls/tls.crt --tls-key-file /etc/specmesh/tls/tls.key \
    --tls-ca-cert-file /etc/specmesh/tls/ca.crt --tls-auto-reload-interval 3600 \
    --aclfile /run/redis/users.acl --masteruser replica --masterauth "$REDIS_INTERNAL_PASSWORD"
else
  set -- --port 6379
fi
# What is acknowledged is on disk here and known to a replica, so that a primary that was cut off
# takes no tokens that a failover would lose; and nothing is evicted.
exec valkey-server "$file" \
  --bind "$POD_IP" --protected-mode no --dir /data --replica-announce-ip "$POD_NAME.redis" \
  --appendonly yes --appendfsync always --save "" \
  --min-replicas-to-write 1 --min-replicas-max-lag 10 \
  --maxmemory-policy noeviction --maxmemory 512mb "$@"
