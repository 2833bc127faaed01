-- One turn of a replica at the request cache: what came to it and what was withdrawn since the
-- last, then whoever is to be released, of all replicas. Redis runs a script alone, so that a
-- request is in one batch at most. release.py decides the same within one process and says
-- why; request_store.py says what the arguments mean.
--
-- KEYS  waiting   sorted set: ids ("REPLICA:NUMBER") by confidence
--       entries   hash: id -> JSON of session_id, prefix_length, prefix_digest, due (ms)
--       sessions  sorted set: sessions at work by when they were seen last (ms)
-- ARGV  the turn, as JSON
-- Returns {ms until the oldest is due, or '', then for each batch {size, own number, ...}};
-- other replicas are told theirs as "size number ..." on the channel "KEYS[1]:REPLICA".

local waiting, entries, sessions = KEYS[1], KEYS[2], KEYS[3]
local turn = cjson.decode(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000

local function channel(replica)
  return waiting .. ':' .. replica
end

local function forget(id)
  redis.call('ZREM', waiting, id)
  redis.call('HDEL', entries, id)
end

local function take_in()
  redis.call('ZREMRANGEBYSCORE', sessions, '-inf', now - turn.live_ms)
  for _, session_id in ipairs(turn.seen) do
    redis.call('ZADD', sessions, now, session_id)
  end
  for _, added in ipairs(turn.added) do
    local id = turn.replica .. ':' .. added.number
    -- As text: JSON would round it.
    added.due = string.format('%.3f', now + added.due_in_ms)
    redis.call('ZADD', waiting, added.confidence, id)
    redis.call('HSET', entries, id, cjson.encode(added))
  end
  for _, number in ipairs(turn.withdrawn) do
    forget(turn.replica .. ':' .. number)
  end
end

-- Who waits and is still there to be told, the least sure first. A replica listens as long as
-- it lives, so one without a listener is dead; one whose machine was lost has missed its time.
local function present()
  local listens = {}
  local found = {}
  for _, id in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
    local replica, number = id:match('^(.*):(.*)$')
    if listens[replica] == nil then
      listens[replica] = redis.call('PUBSUB', 'NUMSUB', channel(replica))[2] > 0
    end
    local stored = redis.call('HGET', entries, id)
    local entry = stored and cjson.decode(stored)
    local due = entry and tonumber(entry.due)
    if listens[replica] and due and due + turn.grace_ms > now then
      table.insert(found,
        {id = id, replica = replica, number = number, session_id = entry.session_id, due = due})
    else
      forget(id)
    end
  end
  return found
end

local function oldest_due(requests)
  local oldest = math.huge
  for _, request in ipairs(requests) do
    oldest = math.min(oldest, request.due)
  end
  return oldest
end

local function all_wait(requests)
  local waits = {}
  for _, request in ipairs(requests) do
    waits[request.session_id] = true
  end
  for _, session_id in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do
    if not waits[session_id] then
      return false
    end
  end
  return true
end

local function to_be_released(requests)
  return #requests >= turn.max_batch or oldest_due(requests) <= now or all_wait(requests)
end

-- Takes one batch out of `requests`, tells the other replicas, and returns this one's part.
local function release(requests)
  local size = math.min(#requests, turn.max_batch)
  local parts = {}
  for _ = 1, size do
    local request = table.remove(requests, 1)
    parts[request.replica] = parts[request.replica] or {tostring(size)}
    table.insert(parts[request.replica], request.number)
    forget(request.id)
  end
  for replica, part in pairs(parts) do
    if replica ~= turn.replica then
      redis.call('PUBLISH', channel(replica), table.concat(part, ' '))
    end
  end
  return parts[turn.replica] or {tostring(size)}
end

take_in()
local requests = present()
local reply = {''}
while #requests > 0 and to_be_released(requests) do
  table.insert(reply, release(requests))
end
if #requests > 0 then
  reply[1] = string.format('%.3f', oldest_due(requests) - now)
  redis.call('PEXPIRE', waiting, turn.live_ms)
  redis.call('PEXPIRE', entries, turn.live_ms)
else
  -- Short of memory, Redis may have evicted the sorted set and left these.
  redis.call('DEL', entries)
end
redis.call('PEXPIRE', sessions, turn.live_ms)
return reply
