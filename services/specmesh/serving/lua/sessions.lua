-- The transitions of one session. Redis runs a script alone, from start to end, so each
-- transition happens entirely or not at all. sessions.py says what they mean.
--
-- KEYS  session  hash: epoch, writer, secret, model, request, num_prompt_tokens
--       tokens   string: prompt and committed tokens, each a little-endian uint32
--                whose highest bit is for the caller
-- ARGV  transition, time to live in s, then the transition's own
-- Returns {status, ...}
--
-- Any of them may run late, long after its caller gave up, and in any order.

local session, tokens = KEYS[1], KEYS[2]
local transition, ttl_s = ARGV[1], ARGV[2]
local TOKEN_BYTES = 4

local stored = {}
stored.epoch, stored.writer, stored.secret, stored.num_prompt_tokens =
  unpack(redis.call('HMGET', session, 'epoch', 'writer', 'secret', 'num_prompt_tokens'))
local exists = stored.epoch
  -- Short of memory, Redis may have evicted one key of the session and left the other.
  and redis.call('STRLEN', tokens) >= stored.num_prompt_tokens * TOKEN_BYTES

local function keep_alive()
  redis.call('EXPIRE', session, ttl_s)
  redis.call('EXPIRE', tokens, ttl_s)
end

-- Positive if the session stands at a later epoch, or at this one for another writer;
-- negative if it stands at an earlier one.
local function ahead_of(epoch, writer)
  local difference = tonumber(stored.epoch) - tonumber(epoch)
  if difference == 0 and stored.writer ~= writer then
    return 1
  end
  return difference
end

local function begins_with(text, start)
  return text:sub(1, #start) == start
end

local function put(epoch, writer, secret, model, request, num_prompt_tokens, all)
  if exists then
    local ahead = ahead_of(epoch, writer)
    if ahead > 0 or stored.secret ~= secret then
      return {'stale', tonumber(stored.epoch)}
    end
    -- A put that runs late must not take back what its writer has appended since.
    if ahead == 0 and begins_with(redis.call('GET', tokens), all) then
      keep_alive()
      return {'ok'}
    end
  end
  redis.call('HSET', session, 'epoch', epoch, 'writer', writer, 'secret', secret,
    'model', model, 'request', request, 'num_prompt_tokens', num_prompt_tokens)
  redis.call('SET', tokens, all)
  keep_alive()
  return {'ok'}
end

local function append(first_index, new)
  local offset = (stored.num_prompt_tokens + first_index) * TOKEN_BYTES
  if offset > redis.call('STRLEN', tokens) then
    return {'conflict', 'tokens before these are missing'}
  end
  local old = redis.call('GETRANGE', tokens, offset, offset + #new - 1)
  if not begins_with(new, old) then
    return {'conflict', 'other tokens stand in this place'}
  end
  if #old < #new then
    redis.call('APPEND', tokens, new:sub(#old + 1))
  end
  keep_alive()
  return {'ok'}
end

local function read()
  local model, request = unpack(redis.call('HMGET', session, 'model', 'request'))
  return {'ok', model, request,
    redis.call('GETRANGE', tokens, 0, stored.num_prompt_tokens * TOKEN_BYTES - 1)}
end

local function take(epoch, writer, received)
  if ahead_of(epoch, writer) >= 0 then
    return {'stale', tonumber(stored.epoch)}
  end
  local prompt_bytes = stored.num_prompt_tokens * TOKEN_BYTES
  local generated = redis.call('GETRANGE', tokens, prompt_bytes, -1)
  if not begins_with(generated, received) then
    generated = received
    redis.call('SET', tokens, redis.call('GETRANGE', tokens, 0, prompt_bytes - 1) .. received)
  end
  redis.call('HSET', session, 'epoch', epoch, 'writer', writer)
  keep_alive()
  return {'ok', generated}
end

if transition == 'put' then
  return put(unpack(ARGV, 3))
end
if not exists then
  return {'not_found'}
end
if transition == 'read' or transition == 'take' then
  if stored.secret ~= ARGV[3] then
    return {'not_found'} -- whoever doesn't know the secret isn't told that there is one
  end
  if transition == 'read' then
    return read()
  end
  return take(unpack(ARGV, 4))
end
local ahead = ahead_of(ARGV[3], ARGV[4])
if ahead > 0 then
  return {'stale', tonumber(stored.epoch)}
end
if ahead < 0 then
  return {'conflict', 'the session stands at an earlier epoch'}
end
if transition == 'append' then
  return append(unpack(ARGV, 5))
end
keep_alive() -- 'finish': with the time to live of a finished session
return {'ok'}
