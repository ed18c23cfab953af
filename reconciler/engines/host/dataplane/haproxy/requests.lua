-- Requests wait in queues of HAProxy, not in scripts: those that wait for a replica in the one of a server of their
-- backend (see `_wait`), and those that an operator holds in one for holds (see `_hold:http`). What is here lets the latter go
-- when the hold has ended, which needs no daemon.
-- A worker that HAProxy has replaced knows no new servers: it passes its requests to the new one (see `use-server` and relieve).

local BACKENDS = { "_hold:http", "_hold:h2", "_hold:tcp" }
local QUEUES = 8
local POLL = 100 -- milliseconds
local SILENT = 2 -- seconds after which a task that looks no more is replaced
local MOST_CHANGES = 400
local HOLDS = "./holds.map"
-- Backend → the end (seconds since the epoch) of the hold by an operator.
local holds = Map.new(HOLDS, Map._str)
-- Port → the backend of its workload.
local ports = Map.new("./ports.map", Map._str)
local reported = {}

-- Returns the seconds since the epoch, with their fraction.
local function clock()
  local now = core.now()
  return now.sec + now.usec / 1e6
end

local function report(name)
  local now = core.now().sec
  if reported[name] ~= now then
    reported[name] = now
    core.log(core.notice, "hold " .. name)
  end
end

-- A backend whose hold is over is no longer in the map, whether the daemon works or not.
local function has_ended(name)
  local ends = tonumber(holds:lookup(name) or 0)
  if ends > 0 and ends <= clock() then
    core.del_map(HOLDS, name)
  end
  return ends <= clock()
end

local function is_replaced()
  return tonumber(core.get_info().Stopping) == 1
end

-- Each change of the limit of a server lets some hundred requests go. Returns whether all have gone.
local function let_go(queue)
  local left = 0
  for _, name in ipairs(BACKENDS) do
    local server = core.backends[name].servers[queue]
    for _ = 1, MOST_CHANGES do
      if server:get_stats().qcur == 0 then
        break
      end
      server:set_maxconn("65536")
    end
    server:set_maxconn("1")
    left = left + server:get_stats().qcur
  end
  return left == 0
end

-- Backend → the queue of its requests that an operator holds; and when they were looked at last.
local watched, looked_at = {}, 0

-- Lets the requests go whose hold has ended. Those of others that share their queue come back to it. In a worker that was
-- replaced, all go, and wait in the new one.
local function watch()
  while next(watched) do
    core.msleep(POLL)
    looked_at = core.now().sec
    local replaced, names = is_replaced(), {}
    for name in pairs(watched) do
      names[#names + 1] = name
    end
    for _, name in ipairs(names) do
      if replaced or has_ended(name) then
        local queue = watched[name]
        -- A request that comes meanwhile has it watched anew.
        watched[name] = nil
        if not let_go(queue) then
          watched[name] = queue
        end
      end
    end
  end
  looked_at = 0
end

-- Tells the daemon that an operator holds a request, and sees that this ends. Does not wait.
core.register_action("watch", { "http-req", "tcp-req" }, function(txn)
  local port = txn.f:dst_port()
  -- A port that has just lost its workload has no name, and no hold.
  local name = ports:lookup(tostring(port)) or ""
  report(name)
  watched[name] = tostring(port % QUEUES)
  local now = core.now().sec
  if now < looked_at or now > looked_at + SILENT then
    looked_at = now
    core.register_task(watch)
  end
end)

-- Tells the daemon that a request waits for a replica.
core.register_action("report", { "http-req", "tcp-req" }, function(txn)
  report(txn.f:be_name())
end)

-- In a worker that was replaced, leads the requests of a backend to the address of their workload, and so to the new
-- worker: its own server gets all of them, and the others no new ones.
local relieved = {}

core.register_action("relieve", { "http-req", "tcp-req" }, function(txn)
  local name = txn.f:be_name()
  if relieved[name] then
    return
  end
  relieved[name] = true
  local servers = core.backends[name].servers
  servers["_self"]:set_weight("1")
  for each, server in pairs(servers) do
    if each ~= "_self" and each ~= "_wait" then
      server:set_drain()
    end
  end
end)

-- Lua frees what requests leave only when it has become twice as much, and until then it keeps the memory around it too.
core.register_cli({ "collect", "garbage" }, "", function() collectgarbage("collect") end)

-- In a worker that was replaced, lets the requests of a backend that wait arrive again, at the new worker: some hundred
-- each time. HAProxy's own command for it is refused there.
core.register_cli({ "arrive", "again" }, "", function(_, _, _, name, times)
  local backend = core.backends[name]
  local server = backend and backend.servers["_wait"]
  for _ = 1, server and tonumber(times) or 0 do
    server:set_maxconn("65536")
  end
end)
