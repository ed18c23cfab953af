-- Holds a request, or a connection, until a replica of its workload is ready, its client has left, or its time is over.
-- A worker that HAProxy has replaced knows no new servers: it passes its requests to the new one (see `use-server`).

local FIRST_WAIT, LONGEST_WAIT = 10, 50 -- milliseconds
local reported = {}
-- Backend → the time (seconds since the epoch) until which its requests wait, because an operator holds them.
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
  local limit = core.now().sec + tonumber(seconds)
  while txn.f:nbsrv(name) == 0 and not is_true(txn.f:stopping()) do
    if core.now().sec >= math.max(limit, tonumber(holds:lookup(name) or 0)) then
      return
    end
    report(name)
    core.msleep(wait)
    wait = math.min(wait + FIRST_WAIT, LONGEST_WAIT)
  end
end, 1)
