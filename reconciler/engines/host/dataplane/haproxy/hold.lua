-- Holds a request, or a connection, until a replica of its workload is ready and no operator holds the workload, its
-- client has left, or its time is over. The end of an operator's hold needs no daemon.
-- A worker that HAProxy has replaced knows no new servers: it passes its requests to the new one (see `use-server` and relieve).

local FIRST_WAIT, LONGEST_WAIT = 10, 50 -- milliseconds
local reported = {}
-- Backend → the end (seconds since the epoch) of the hold by an operator.
local holds = Map.new("./holds.map", Map._str)

local function is_true(value)
  return value == true or value == 1
end

local function report(name)
  local now = core.now().sec
  if reported[name] ~= now then
    reported[name] = now
    core.log(core.notice, "hold " .. name)
  end
end

core.register_action("hold", { "http-req", "tcp-req" }, function(txn, seconds)
  local name, wait = txn.f:be_name(), FIRST_WAIT
  local start, now = core.now().sec, core.now().sec
  local function hold_end()
    return tonumber(holds:lookup(name) or 0)
  end
  while not is_true(txn.f:stopping()) and (txn.f:nbsrv(name) == 0 or now < hold_end()) do
    if now >= math.max(start, hold_end()) + tonumber(seconds) then
      return
    end
    report(name)
    core.msleep(wait)
    wait = math.min(wait + FIRST_WAIT, LONGEST_WAIT)
    now = core.now().sec
  end
end, 1)

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
    if each ~= "_self" then
      server:set_drain()
    end
  end
end)
