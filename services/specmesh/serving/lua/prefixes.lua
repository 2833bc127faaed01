-- Which replicas hold a prefix, and every beginning of it that is worth noting. prefix_directory.py
-- says what that is for.
--
-- KEYS  sorted sets, one for each beginning of one prefix, the shortest first: replicas, by the
--       time in ms at which their lease ends
-- ARGV  'note', lease in ms, most replicas to keep, then pairs: a replica, and how many of KEYS,
--       from the first on, it holds
--       'find', most replicas to return
-- find returns pairs: a replica, and how many of KEYS it holds; those that hold most come first

local seconds, microseconds = unpack(redis.call('TIME'))
local now_ms = seconds * 1000 + math.floor(microseconds / 1000)

local function note(lease_ms, most, ...)
  local held = {...}
  for number, key in ipairs(KEYS) do
    local is_held = false
    for at = 1, #held, 2 do
      if number <= tonumber(held[at + 1]) then
        redis.call('ZADD', key, now_ms + lease_ms, held[at])
        is_held = true
      end
    end
    if is_held then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms)
      redis.call('ZREMRANGEBYRANK', key, 0, -most - 1)
      redis.call('PEXPIRE', key, lease_ms)
    end
  end
end

local function find(most)
  local found, known = {}, {}
  for number = #KEYS, 1, -1 do
    for _, replica in ipairs(redis.call('ZRANGEBYSCORE', KEYS[number], '(' .. now_ms, '+inf')) do
      if not known[replica] then
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
  return note(tonumber(ARGV[2]), tonumber(ARGV[3]), unpack(ARGV, 4))
end
return find(tonumber(ARGV[2]))
