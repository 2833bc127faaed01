# Start a Sentinel, which keeps what it knows in its file.
set -eu
file=/data/sentinel.conf
if [ ! -e "$file" ]; then
  cat > "$file.new" <<CONF
port 26379
bind $POD_IP
protected-mode no
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
# The pod has another address after each start.
sed -i "s/^bind .*/bind $POD_IP/" "$file"
exec valkey-server "$file" --sentinel
