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

-- While a script waits, HAProxy from 2.9 on reads nothing from a client with HTTP/1, so the kernel tells who has left.
-- Several clients can have the same two ports: all of them have left, or none.
local READ_SECONDS, SHARE = 0.5, 20
local ESTABLISHED, CLOSE_WAIT = "01", "08"
local ports, open, closed, next_read = {}, {}, {}, 0

local function read_clients()
  local start = os.clock()
  open, closed = {}, {}
  for _, name in ipairs({ "/proc/net/tcp", "/proc/net/tcp6" }) do
    local file = io.open(name)
    if file then
      for own, other, state in file:read("a"):gmatch("\n *%d+: %x+:(%x+) %x+:(%x+) (%x+) ") do
        if ports[own] and state == ESTABLISHED then
          open[own .. other] = true
        elseif ports[own] and state == CLOSE_WAIT then
          closed[own .. other] = true
        end
      end
      file:close()
    end
  end
  return math.max(READ_SECONDS, SHARE * (os.clock() - start))
end

-- Returns a function that returns whether the client of a request has left, as far as that is known.
local function client_of(txn)
  -- Behind a proxy that announces its clients, the port is not that of the connection. HAProxy notices the end of others.
  if not txn.http or is_true(txn.f:fc_rcvd_proxy()) then
    return function() return false end
  end
  local own, seen = string.format("%04X", txn.f:dst_port()), false
  local pair = own .. string.format("%04X", txn.f:src_port())
  ports[own] = true
  return function(now)
    if now >= next_read then
      next_read = now + read_clients()
    end
    seen = seen or open[pair]
    return not open[pair] and (seen or closed[pair])
  end
end

core.register_action("hold", { "http-req", "tcp-req" }, function(txn, seconds)
  local name, wait, has_left = txn.f:be_name(), FIRST_WAIT, client_of(txn)
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
    if has_left(now + core.now().usec / 1e6) then
      txn:done()
    end
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
