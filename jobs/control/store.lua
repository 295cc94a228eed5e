-- The transitions of a job's state in Redis. Each is atomic, and running one twice does no harm.
--
-- Keys, below the key prefix (JOBCTL_KEY_PREFIX):
--   jobs                     zset    job id -> when it was registered, ms
--   open                     set     jobs that the reconciler has to look at
--   refused                  list    messages that nobody can do, newest first
--   workers                  set     names that have a heartbeat
--   worker:<name>            string  the heartbeat, with a time to live
--   doctor:<id>              string  written, read and removed by `jobctl doctor`
--   job:<id>                 hash    the record; cancelled_at, failed, failed_kind and ended are set once, and are
--                                    gone where num_reopened counts that the job was let run again
--   job:<id>:clock           hash    looked_at, elapsed: ms that the job has taken, where it has a timeout
--   job:<id>:delivery        hash    shard -> number of the newest message that was enqueued
--   job:<id>:taken           hash    shard -> number of the newest message that an attempt was begun from
--   job:<id>:claimed_at      hash    shard -> when its newest message was about to be enqueued, ms; gone when taken
--   job:<id>:failures        hash    shard -> attempts in a row that added no finished row
--   job:<id>:errors          hash    shard -> what its last failed attempt said
--   job:<id>:retry_at        hash    shard -> not to be enqueued again before, ms
--   job:<id>:dead            hash    shard -> why, when and by whom it was given up, JSON: the dead letters
--   job:<id>:live            hash    shard -> progress of the attempt that holds its lease, JSON
--   job:<id>:last            hash    shard -> the same of the last attempt that held it
--   job:<id>:lease:<shard>   string  the owner that may commit the shard, with a time to live
--
-- KEYS: 1 open, 2 job:<id>. The job's other keys begin with KEYS[2]; no cluster is needed for one queue.
-- ARGV: 1 the transition, 2 the shard, then its own arguments.

local verb, shard = ARGV[1], ARGV[2]
local open, job = KEYS[1], KEYS[2]
local lease = job .. ':lease:' .. shard

local function at(name) return job .. ':' .. name end
local function number(name) return tonumber(redis.call('HGET', at(name), shard) or '0') end
local function clear(...) for _, name in ipairs({...}) do redis.call('HDEL', at(name), shard) end end
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Why nothing of this job may run now, or false.
local function stopped()
  local facts = redis.call('HMGET', job, 'job_id', 'cancelled_at', 'failed')
  if not facts[1] then return 'unknown' end
  return facts[2] and 'cancelled' or facts[3] and 'failed'
end

-- The attempt that held the shard no longer does.
local function retire()
  local progress = redis.call('HGET', at('live'), shard)
  if progress then redis.call('HSET', at('last'), shard, progress) end
  clear('live')
end

local function bury(reason)
  retire()
  local last = cjson.decode(redis.call('HGET', at('last'), shard) or '{}')
  local letter = {error = reason, at_ms = now_ms(), worker = last.worker, attempt = last.attempt}
  redis.call('HSETNX', at('dead'), shard, cjson.encode(letter))
  return 'dead'
end

-- What stopped the job is taken back, and it is kept for as long as it runs.
local function let_run()
  redis.call('HDEL', job, 'cancelled_at', 'failed', 'failed_kind', 'ended')
  redis.call('HINCRBY', job, 'num_reopened', 1)
  redis.call('DEL', at('clock'))
  redis.call('SADD', open, redis.call('HGET', job, 'job_id'))
  redis.call('PERSIST', job)
  for i = 3, #ARGV do redis.call('PERSIST', at(ARGV[i])) end
  return 'open'
end

local verbs = {}

-- The number of the shard's next message, or why there must be none now. Of many callers that saw the same
-- newest number one gets the next. ARGV: 3 the number seen, 4 grace ms, 5 most failures.
function verbs.claim()
  local newest, now = number('delivery'), now_ms()
  if stopped() then return stopped() end
  if redis.call('HEXISTS', at('dead'), shard) == 1 then return 'dead' end
  if redis.call('EXISTS', lease) == 1 then return 'held' end
  if number('failures') >= tonumber(ARGV[5]) then
    return bury(redis.call('HGET', at('errors'), shard) or 'its workers died without a word')
  end
  if number('retry_at') > now then return 'waiting' end
  local on_its_way = newest > number('taken') and number('claimed_at') + ARGV[4] > now
  if newest ~= tonumber(ARGV[3]) or on_its_way then return 'enqueued' end
  redis.call('HSET', at('claimed_at'), shard, now)
  return redis.call('HINCRBY', at('delivery'), shard, 1)
end

-- The lease, for an attempt begun from a message. A message serves one attempt: one that comes twice is stale,
-- as is one that is not the newest. The attempt counts as failed until it adds a row.
-- ARGV: 3 the message's number, 4 owner, 5 ttl ms, 6 progress.
function verbs.take()
  if stopped() then return stopped() end
  local holder, message = redis.call('GET', lease), tonumber(ARGV[3])
  if holder == ARGV[4] then return 'taken' end
  if holder then return 'held' end
  if message ~= number('delivery') or message <= number('taken') then return 'stale' end
  redis.call('SET', lease, ARGV[4], 'NX', 'PX', ARGV[5])
  redis.call('HSET', at('taken'), shard, message)
  redis.call('HSET', at('live'), shard, ARGV[6])
  redis.call('HINCRBY', at('failures'), shard, 1)
  clear('claimed_at')
  return 'taken'
end

-- ARGV: 3 owner, 4 ttl ms, 5 progress.
function verbs.renew()
  if redis.call('GET', lease) ~= ARGV[3] then return 'lost' end
  redis.call('PEXPIRE', lease, ARGV[4])
  redis.call('HSET', at('live'), shard, ARGV[5])
  return stopped() or 'held'
end

-- Gives the lease back. `failed` is remembered, `dead` is the last attempt; `forgiven` takes back that the attempt counted; `done` ends the count.
-- ARGV: 3 owner, 4 outcome, 5 error, 6 first wait ms, 7 longest wait ms, 8 most failures, 9 progress or ''.
function verbs.release()
  if redis.call('GET', lease) ~= ARGV[3] then return 'lost' end
  redis.call('DEL', lease)
  if ARGV[9] ~= '' then redis.call('HSET', at('live'), shard, ARGV[9]) end
  retire()
  local failures = number('failures')
  if ARGV[4] == 'done' then clear('failures') end
  if ARGV[4] == 'forgiven' then redis.call('HSET', at('failures'), shard, math.max(failures - 1, 0)) end
  if ARGV[4] ~= 'failed' and ARGV[4] ~= 'dead' then return 'free' end
  redis.call('HSET', at('errors'), shard, ARGV[5])
  if ARGV[4] == 'dead' or failures >= tonumber(ARGV[8]) then return bury(ARGV[5]) end
  local wait = math.min(ARGV[6] * 2 ^ math.max(failures - 1, 0), tonumber(ARGV[7]))
  redis.call('HSET', at('retry_at'), shard, now_ms() + math.floor(wait))
  return 'free'
end

-- Shards under a lease, as shard, progress, shard, progress… An attempt that died leaves its progress behind.
function verbs.running()
  local live, kept = redis.call('HGETALL', at('live')), {}
  for i = 1, #live, 2 do
    if redis.call('EXISTS', job .. ':lease:' .. live[i]) == 1 then
      table.insert(kept, live[i])
      table.insert(kept, live[i + 1])
    else
      redis.call('HDEL', at('live'), live[i])
      redis.call('HSET', at('last'), live[i], live[i + 1])
    end
  end
  return kept
end

-- Sets a fact that ends the job, unless it has ended.
-- ARGV: 3 cancelled_at, failed or ended, 4 its value, 5 of a failure its kind, of an ending num_reopened when it was
-- seen, or ''.
function verbs.stop()
  if redis.call('EXISTS', job) == 0 then return 'unknown' end
  local reopened = tonumber(redis.call('HGET', job, 'num_reopened') or '0')
  if ARGV[3] == 'ended' and (tonumber(ARGV[5]) or reopened) ~= reopened then return 'reopened' end
  redis.call('SREM', open, redis.call('HGET', job, 'job_id'))
  if redis.call('HEXISTS', job, 'ended') == 1 then return 'ended' end
  if redis.call('HSETNX', job, ARGV[3], ARGV[4]) == 1 and ARGV[3] == 'failed' then
    redis.call('HSET', job, 'failed_kind', ARGV[5])
  end
  return 'stopped'
end

-- The ms that the job has taken: the time between looks adds up, so that a clock that is set changes little.
-- ARGV: 3 the most that two looks may lie apart, ms.
function verbs.look()
  local clock, now = redis.call('HMGET', at('clock'), 'looked_at', 'elapsed'), now_ms()
  local since = math.max(now - (clock[1] or now), 0)
  local elapsed = (clock[2] or 0) + math.min(since, tonumber(ARGV[3]))
  redis.call('HSET', at('clock'), 'looked_at', now, 'elapsed', elapsed)
  return elapsed
end

-- The job runs (again), and its dead letters get new attempts. ARGV: 3… the names of its hashes.
function verbs.open()
  redis.call('DEL', at('dead'), at('failures'), at('errors'), at('retry_at'))
  return let_run()
end

-- The job runs (again), and its dead letters stay. ARGV: 3… the names of its hashes.
function verbs.let_run() return let_run() end

-- One dead letter gets new attempts, and the job runs (again). ARGV: 3… the names of its hashes.
function verbs.revive()
  if redis.call('HEXISTS', at('dead'), shard) == 0 then return 'alive' end
  clear('dead', 'failures', 'errors', 'retry_at')
  return let_run()
end

-- A dead letter is forgotten, where the job has ended.
function verbs.purge()
  local facts = redis.call('HMGET', job, 'cancelled_at', 'failed', 'ended')
  if not (facts[1] or facts[2] or facts[3]) then return 'open' end
  return redis.call('HDEL', at('dead'), shard) == 1 and 'purged' or 'alive'
end

return verbs[verb]()
