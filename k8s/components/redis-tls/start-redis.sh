# Start Redis behind TLS. Whoever has the password may do what the mesh needs (docs/security.md),
# anybody else may ask whether it is up. Only a hash of the password is written, and not to a disk.
set -eu
umask 077
hash=$(printf %s "$REDIS_PASSWORD" | sha256sum | cut -d " " -f 1)
cat > /run/redis/users.acl <<ACL
user default on nopass resetkeys resetchannels -@all +ping
user specmesh on #$hash ~specmesh:* +evalsha +script|load +ping +get +set +getrange +append +strlen +hmget +hset +hdel +del +expire +pttl +time +zadd +zrevrangebyscore +zremrangebyscore +zremrangebyrank +pexpire +select +info +config|get
ACL
# What is acknowledged is on disk, and is never evicted: a full Redis refuses writes, and answers go
# on unstored. Certificates that cert-manager has renewed are read within the hour.
exec valkey-server \
  --bind "$POD_IP" --protected-mode no --port 0 --tls-port 6379 --tls-auth-clients no --tls-auto-reload-interval 3600 \
  --tls-cert-file /etc/specmesh/tls/tls.crt --tls-key-file /etc/specmesh/tls/tls.key \
  --tls-ca-cert-file /etc/specmesh/tls/ca.crt --aclfile /run/redis/users.acl \
  --dir /data --appendonly yes --appendfsync always --save "" \
  --maxmemory-policy noeviction --maxmemory 512mb
