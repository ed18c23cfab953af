-- Requests wait in queues of HAProxy, not in scripts: those that wait for a replica in the one of a server of their
-- backend (see `_wait`), and those that an operator holds in one for holds (see `_hold:http`). What is here lets the latter go
-- when the hold has ended, which needs no daemon.
-- A worker that HAProxy has replaced knows no new servers: it passes its requests to the new one (see `use-server` and relieve).

local HOLD_QUEUES = { "_hold:http", "_hold:h2", "_hold:tcp" }
local QUEUES = 8
local POLL = 100 -- milliseconds
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

-- Each change of the limit of a server lets some hundred requests go.
local function let_go(queue)
  for _, name in ipairs(HOLD_QUEUES) do
    local server = core.backends[name].servers[queue]
    while server:get_stats().qcur > 0 do
      server:set_maxconn("65536")
    end
    server:set_maxconn("1")
  end
end

-- Backend → the queue of its requests that an operator holds.
local watched, watches = {}, false

-- Lets the requests go whose hold has ended. Those of others that share their queue come back to it. In a worker that was
-- replaced, all go, and wait in the new one.
local function watch()
  while next(watched) do
    core.msleep(POLL)
    local replaced, ended = is_replaced(), {}
    for name, queue in pairs(watched) do
      if replaced or has_ended(name) then
        ended[name] = queue
      end
    end
    for name, queue in pairs(ended) do
      -- A request that comes now has it watched anew.
      watched[name] = nil
      let_go(queue)
    end
  end
  watches = false
end

-- Tells the daemon that an operator holds a request, and sees that this ends. Does not wait.
core.register_action("watch", { "http-req", "tcp-req" }, function(txn)
  local port = txn.f:dst_port()
  local name = ports:lookup(tostring(port))
  report(name)
  watched[name] = tostring(port % QUEUES)
  if not watches then
    watches = true
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
