# Start a Sentinel, which keeps what it knows in its file.
set -eu
umask 077
file=/data/sentinel.conf
if [ ! -e "$file" ]; then
  cat > "$file.new" <<CONF
bind $POD_IP
dir /data
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $POD_NAME.redis
sentinel monitor specmesh redis-0.redis 6379 2
sentinel down-after-milliseconds specmesh 5000
sentinel failover-timeout specmesh 30000
sentinel parallel-syncs specmesh 1
CONF
  mv "$file.new" "$file"
fi
# The pod has another address after each start, and maybe other passwords.
sed -i -e "s/^bind .*/bind $POD_IP/" \
  -e '/^sentinel \(auth-user\|auth-pass\|sentinel-user\|sentinel-pass\) /d' "$file"
if [ -n "${REDIS_PASSWORD:-}" ]; then
  hash() { printf %s "$1" | sha256sum | cut -d " " -f 1; }
  cat > /run/redis/users.acl <<ACL
user default on nopass resetkeys resetchannels -@all +ping
user specmesh on #$(hash "$REDIS_PASSWORD") resetkeys -@all +ping +sentinel|masters
user sentinel on #$(hash "$REDIS_INTERNAL_PASSWORD") allkeys allchannels +@all
ACL
  cat >> "$file" <<CONF
sentinel auth-user specmesh sentinel
sentinel auth-pass specmesh $REDIS_INTERNAL_PASSWORD
sentinel sentinel-user sentinel
sentinel sentinel-pass $REDIS_INTERNAL_PASSWORD
CONF
  set -- --port 0 --tls-port 26379 --tls-replication yes --tls-auth-clients no \
    --tls-cert-file /etc/specmesh/tls/tls.crt --tls-key-file /etc/specmesh/tls/tls.key \
    --tls-ca-cert-file /etc/specmesh/tls/ca.crt --tls-auto-reload-interval 3600 \
    --aclfile /run/redis/users.acl
else
  set -- --port 26379
fi
exec valkey-server "$file" --sentinel --protected-mode no "$@"
