-- The transitions of one session. session_store.py documents them. Redis runs a script atomically,
-- so each transition happens entirely or not at all.
--
-- KEYS  session  hash: epoch, writer, secret, model, request, num_prompt_tokens; turn, a copy of
--                epoch and writer; seal, a hash of all fields that never change; and, once the
--                session has ended, ended: the reason why the answer is complete, or CANCELLED
--       tokens   string: prompt and committed tokens, each a little-endian uint32
--                whose highest bit is for the caller
-- ARGV  transition, time to live in s, then the transition's own arguments
-- Returns {status, ...}
--
-- A session whose keys were damaged counts as missing: its writer puts it again, and its client
-- resumes from the tokens that it has. {'not_found', WHAT} and {'ok', 1, WHAT} name the damage.
--
-- Transitions may run in any order, and long after their callers gave up.
--
-- A Redis without memory refuses only a script's first write, if that one may need memory. Whatever
-- makes a session larger therefore begins with such a write, and what ends one with another.

local session, tokens = KEYS[1], KEYS[2]
local transition, ttl_s = ARGV[1], ARGV[2]
local TOKEN_BYTES = 4
local MOST = 2 ^ 32 -- an upper bound of epochs, exclusive
local CANCELLED = 'cancelled'

-- Return the reply to a command; nil if the key holds another type.
local function on_type(command, ...)
  local reply = redis.pcall(command, ...)
  if type(reply) == 'table' and reply.err then
    if reply.err:find('WRONGTYPE', 1, true) then
      return nil
    end
    return redis.call(command, ...) -- fails again, and makes the script fail
  end
  return reply
end

local fields = on_type(
  'HMGET', session, 'epoch', 'writer', 'secret', 'num_prompt_tokens', 'ended', 'turn')
local stored = {}
stored.epoch, stored.writer, stored.secret, stored.num_prompt_tokens, stored.ended, stored.turn =
  unpack(fields or {})

local function begins_with(text, start)
  return text:sub(1, #start) == start
end

local function turn_of(epoch, writer)
  return writer .. ' ' .. epoch
end

-- Return what is damaged of the session, by a check that doesn't read its tokens.
local function damage(num_bytes)
  if not num_bytes then
    return 'the type of its tokens'
  end
  if not (stored.writer and stored.secret and tonumber(stored.num_prompt_tokens)
      and (tonumber(stored.epoch) or MOST) < MOST) then
    return 'its fields'
  end
  -- Versions without turns take a session without changing the turn of the former writer.
  if stored.turn and begins_with(stored.turn, stored.writer .. ' ')
      and stored.turn ~= turn_of(stored.epoch, stored.writer) then
    return 'its epoch'
  end
  if num_bytes % TOKEN_BYTES ~= 0 or num_bytes < stored.num_prompt_tokens * TOKEN_BYTES then
    return 'the number of its tokens'
  end
end

-- Return a hash of all fields that never change.
local function seal_of(secret, model, request, num_prompt_tokens, all)
  local prompt = all:sub(1, num_prompt_tokens * TOKEN_BYTES)
  return redis.sha1hex(table.concat(
    {secret, #model, model, #request, request, num_prompt_tokens, redis.sha1hex(prompt)}, ' '))
end

-- Return a true value if request and prompt are exactly what was written. Sessions of versions
-- without seals are trusted.
local function is_sealed()
  local model, request, seal = unpack(redis.call('HMGET', session, 'model', 'request', 'seal'))
  return model and request and (not seal or seal == seal_of(
    stored.secret, model, request, stored.num_prompt_tokens, redis.call('GET', tokens)))
end

local exists, damaged = false, nil
if not fields then
  damaged = 'its type'
elseif stored.epoch then
  local num_bytes = on_type('STRLEN', tokens)
  -- Redis may have evicted one of the two keys when it was short of memory.
  if num_bytes ~= 0 then
    damaged = damage(num_bytes)
    exists = not damaged
  end
end

local function keep_alive()
  redis.call('EXPIRE', session, ttl_s)
  redis.call('EXPIRE', tokens, ttl_s)
end

-- Return a positive number if the session is at a later epoch, or at this one with another writer;
-- 0 if it is at this epoch and writer; a negative number if it is at an earlier epoch.
local function ahead_of(epoch, writer)
  local difference = tonumber(stored.epoch) - tonumber(epoch)
  if difference == 0 and stored.writer ~= writer then
    return 1
  end
  return difference
end

local function write(epoch, writer, secret, model, request, num_prompt_tokens, all)
  redis.call('SET', tokens, all)
  redis.call('DEL', session)
  redis.call('HSET', session, 'epoch', epoch, 'writer', writer, 'secret', secret,
    'model', model, 'request', request, 'num_prompt_tokens', num_prompt_tokens,
    'turn', turn_of(epoch, writer),
    'seal', seal_of(secret, model, request, num_prompt_tokens, all))
  keep_alive()
end

local function begin(epoch, writer, secret, ...)
  if exists then
    if stored.secret ~= secret then
      return {'taken'}
    end
    if is_sealed() then
      return {'ok', 0}
    end
    damaged = 'its request or its prompt'
  end
  write(epoch, writer, secret, ...)
  return {'ok', 1, damaged}
end

local function put(epoch, writer, secret, model, request, num_prompt_tokens, all)
  if exists then
    local ahead = ahead_of(epoch, writer)
    if ahead > 0 or stored.secret ~= secret then
      return {'stale', tonumber(stored.epoch)}
    end
    if stored.ended == CANCELLED then
      return {'cancelled'}
    end
    -- A put that runs late must not remove tokens that its writer has appended since.
    if ahead == 0 and stored.num_prompt_tokens == num_prompt_tokens
        and begins_with(redis.call('GET', tokens), all) then
      keep_alive()
      return {'ok'}
    end
  end
  write(epoch, writer, secret, model, request, num_prompt_tokens, all)
  return {'ok'}
end

local function append(first_index, new)
  local offset = (stored.num_prompt_tokens + first_index) * TOKEN_BYTES
  if offset > redis.call('STRLEN', tokens) then
    return {'conflict', 'tokens before these are missing'}
  end
  local old = redis.call('GETRANGE', tokens, offset, offset + #new - 1)
  if not begins_with(new, old) then
    return {'conflict', 'other tokens are stored at these positions'}
  end
  if #old < #new then
    redis.call('APPEND', tokens, new:sub(#old + 1))
    if stored.ended then
      redis.call('HDEL', session, 'ended')
    end
  end
  keep_alive()
  return {'ok'}
end

local function finish(num_generated, why)
  local num_bytes = (stored.num_prompt_tokens + num_generated) * TOKEN_BYTES
  local surplus_bytes = redis.call('STRLEN', tokens) - num_bytes
  if surplus_bytes < 0 or surplus_bytes > 0 and not is_sealed() then
    return {'conflict', 'these are not all of its tokens'}
  end
  keep_alive()
  if surplus_bytes > 0 then -- not by its writer, whose last transition this is
    redis.call('SET', tokens, redis.call('GETRANGE', tokens, 0, num_bytes - 1))
    keep_alive()
  end
  redis.call('HSET', session, 'ended', why)
  return {'ok'}
end

local function read()
  if not is_sealed() then
    return {'not_found', 'its request or its prompt'}
  end
  local model, request = unpack(redis.call('HMGET', session, 'model', 'request'))
  return {'ok', tonumber(stored.epoch), model, request, stored.ended or '',
    redis.call('PTTL', session), tonumber(stored.num_prompt_tokens), redis.call('GET', tokens)}
end

-- Make writer the session's writer; without an epoch, under the one after the session's.
local function take(epoch, writer, received, exactly)
  if not is_sealed() then -- the session may have been damaged since the taker read it
    return {'not_found', 'its request or its prompt'}
  end
  if stored.ended == CANCELLED then
    return {'cancelled'}
  end
  if epoch == '' then
    epoch = stored.epoch + 1
  elseif ahead_of(epoch, writer) >= 0 then
    return {'stale', tonumber(stored.epoch)}
  end
  local prompt_bytes = stored.num_prompt_tokens * TOKEN_BYTES
  local generated = redis.call('GETRANGE', tokens, prompt_bytes, -1)
  if exactly == '1' or not begins_with(generated, received) then
    generated = received
    redis.call('SET', tokens, redis.call('GETRANGE', tokens, 0, prompt_bytes - 1) .. received)
    redis.call('HDEL', session, 'ended')
  end
  redis.call('HSET', session, 'epoch', epoch, 'writer', writer, 'turn', turn_of(epoch, writer))
  keep_alive()
  return {'ok', tonumber(epoch), generated}
end

local function cancel()
  if not stored.ended then
    keep_alive()
    redis.call('HSET', session, 'ended', CANCELLED)
  end
  return {'ok'}
end

if transition == 'begin' then
  return begin(unpack(ARGV, 3))
elseif transition == 'put' then
  return put(unpack(ARGV, 3))
end
if not exists then
  return {'not_found', damaged}
end
local of_its_client = {read = read, take = take, cancel = cancel}
if of_its_client[transition] then
  if stored.secret ~= ARGV[3] then
    return {'not_found'} -- a caller without the secret must not learn that the session exists
  end
  return of_its_client[transition](unpack(ARGV, 4))
end
local ahead = ahead_of(ARGV[3], ARGV[4])
if ahead > 0 then
  return {'stale', tonumber(stored.epoch)}
end
if stored.ended == CANCELLED then
  return {'cancelled'}
end
if ahead < 0 then
  return {'conflict', 'the session is at an earlier epoch'}
end
local of_its_writer = {append = append, finish = finish}
return of_its_writer[transition](unpack(ARGV, 5))
