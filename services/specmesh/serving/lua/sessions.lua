-- The transitions of one session. Redis runs a script alone, from start to end, so each
-- transition happens entirely or not at all. sessions.py says what they mean.
--
-- KEYS  session  hash: epoch, owner, request, num_prompt_tokens and, at the end, finished
--       tokens   string: prompt and committed tokens, each a little-endian uint32
--                whose highest bit is for the caller
--       lease    string: the owner; Redis's own clock takes it away when the lease runs out
-- ARGV  transition, TTL of the session in s, lease in ms, then the transition's own
-- Returns {status, ...}
--
-- Epochs are compared as decimal strings: they come from clients as uint64, and a Lua
-- number would round those above 2^53.

local session, tokens, lease = KEYS[1], KEYS[2], KEYS[3]
local transition, ttl_s, lease_ms = ARGV[1], ARGV[2], ARGV[3]
local TOKEN_BYTES = 4

local epoch, owner, num_prompt_tokens, finished =
  unpack(redis.call('HMGET', session, 'epoch', 'owner', 'num_prompt_tokens', 'finished'))

-- Nobody can hold a finished session: there is nothing left to write.
local function keep_alive(holder)
  redis.call('EXPIRE', session, ttl_s)
  redis.call('EXPIRE', tokens, ttl_s)
  if not finished then
    redis.call('SET', lease, holder, 'PX', lease_ms)
  end
end

local function create(holder, request, prompt)
  if epoch then
    -- A create whose answer was lost is repeated; anything else would overwrite.
    local same = epoch == '1' and owner == holder
      and redis.call('HGET', session, 'request') == request
      and redis.call('GET', tokens) == prompt
    if not same then
      return {'conflict', 'the session exists'}
    end
  else
    redis.call('HSET', session, 'epoch', 1, 'owner', holder, 'request', request,
      'num_prompt_tokens', #prompt / TOKEN_BYTES)
    redis.call('SET', tokens, prompt)
  end
  keep_alive(holder)
  return {'ok', 1}
end

local function append(first_index, new)
  local offset = (num_prompt_tokens + first_index) * TOKEN_BYTES
  if offset > redis.call('STRLEN', tokens) then
    return {'conflict', 'tokens before these are missing'}
  end
  local stored = redis.call('GETRANGE', tokens, offset, offset + #new - 1)
  if stored ~= new:sub(1, #stored) then
    return {'conflict', 'other tokens stand in this place'}
  end
  if #stored < #new then
    if finished then
      return {'conflict', 'the session is finished'}
    end
    redis.call('APPEND', tokens, new:sub(#stored + 1))
  end
  keep_alive(owner)
  return {'ok'}
end

local function take(holder, witnessed)
  if witnessed == '' then
    local alive = redis.call('GET', lease)
    if alive then
      return {'held', alive, redis.call('PTTL', lease)}
    end
  elseif witnessed ~= epoch then
    return {'stale', epoch}
  end
  local next_epoch = redis.call('HINCRBY', session, 'epoch', 1)
  redis.call('HSET', session, 'owner', holder)
  keep_alive(holder)
  return {'ok', next_epoch, redis.call('HGET', session, 'request'), num_prompt_tokens,
    finished and 1 or 0, redis.call('GET', tokens)}
end

local function finish()
  finished = '1'
  redis.call('HSET', session, 'finished', finished)
  redis.call('DEL', lease)
  keep_alive(owner)
  return {'ok'}
end

if transition == 'create' then
  return create(ARGV[4], ARGV[5], ARGV[6])
end
-- Short of memory, Redis may have evicted one key of the session and left the other.
if not epoch or redis.call('STRLEN', tokens) < num_prompt_tokens * TOKEN_BYTES then
  return {'not_found'}
end
if transition == 'take' then
  return take(ARGV[4], ARGV[5])
end
if epoch ~= ARGV[4] then
  return {'stale', epoch}
end
if transition == 'append' then
  return append(ARGV[5], ARGV[6])
end
if transition == 'renew' then
  keep_alive(owner)
  return {'ok'}
end
return finish()
