-- The directory of the replicas that hold a prefix, or beginnings of it; see prefix_directory.py.
--
-- KEYS  one sorted set for each beginning of one prefix, the shortest first: replicas by the time
--       in ms at which their lease ends
-- ARGV  'note', lease in ms, most replicas to keep, then pairs: a replica, and the number of KEYS,
--       from the first on, that it holds
--       'find', lease in ms, most replicas to return
-- 'find' returns pairs: a replica, and the number of KEYS that it holds, the highest number first.
--
-- Garbage under a key doesn't affect the other keys, and the next note removes it.

local seconds, microseconds = unpack(redis.call('TIME'))
local now_ms = seconds * 1000 + math.floor(microseconds / 1000)
local lease_ms, most = tonumber(ARGV[2]), tonumber(ARGV[3])

-- Entries with longer names or later ends than these are garbage.
local LONGEST_NAME = 256
local latest_end_ms = now_ms + lease_ms

-- Return the reply to a command on a sorted set; nil if the key holds another type.
local function on_sorted_set(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    if reply.err:find('WRONGTYPE', 1, true) then
      return nil
    end
    return redis.call(command, key, ...) -- fails again, and makes the script fail
  end
  return reply
end

local function add(key, lease_ends_ms, replica)
  if not on_sorted_set('ZADD', key, lease_ends_ms, replica) then
    redis.call('DEL', key)
    redis.call('ZADD', key, lease_ends_ms, replica)
  end
end

local function note(...)
  local held = {...}
  for number, key in ipairs(KEYS) do
    local is_held = false
    for at = 1, #held, 2 do
      if number <= tonumber(held[at + 1]) then
        add(key, latest_end_ms, held[at])
        is_held = true
      end
    end
    if is_held then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms)
      redis.call('ZREMRANGEBYSCORE', key, '(' .. latest_end_ms, '+inf')
      redis.call('ZREMRANGEBYRANK', key, 0, -most - 1)
      redis.call('PEXPIRE', key, lease_ms)
    end
  end
end

local function find()
  local found, known = {}, {}
  for number = #KEYS, 1, -1 do
    local held_by = on_sorted_set(
      'ZREVRANGEBYSCORE', KEYS[number], latest_end_ms, '(' .. now_ms, 'LIMIT', 0, most)
    for _, replica in ipairs(held_by or {}) do
      if not known[replica] and #replica > 0 and #replica <= LONGEST_NAME then
        known[replica] = true
        found[#found + 1] = replica
        found[#found + 1] = number
      end
    end
    if #found >= 2 * most then
      break
    end
  end
  return found
end

if ARGV[1] == 'note' then
  return note(unpack(ARGV, 4))
end
return find()
