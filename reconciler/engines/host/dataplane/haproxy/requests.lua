-- Holds a request, or a connection, until the end of an operator's hold, or until its client has left. The end needs no
-- daemon. Requests that wait for a replica need no script: they are in the queue of a server (see `_wait`).
-- A worker that HAProxy has replaced knows no new servers: it passes its requests to the new one (see `use-server` and relieve).

-- A hold may last longer than the one timeout of queues, and it ends without the daemon: a queue can do neither. Scripts
-- of HAProxy before 2.9 see no servers that have come at run time, so they could not lead requests on.
-- A script that wakes takes the one lock of all scripts, so it wakes rarely: 1,000 that wait cost others nothing that
-- can be measured (see the test of neighbours).
local FIRST_WAIT, LONGEST_WAIT = 50, 500 -- milliseconds
local reported = {}
-- Backend → the end (seconds since the epoch) of the hold by an operator.
local holds = Map.new("./holds.map", Map._str)

-- Returns the seconds since the epoch, with their fraction.
local function clock()
  local now = core.now()
  return now.sec + now.usec / 1e6
end

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
local READ_SECONDS, LONGEST_READ, SHARE = 0.5, 5, 50
local ESTABLISHED, CLOSE_WAIT = "01", "08"
local ports, open, closed, reads, next_read = {}, {}, {}, 0, 0

-- HAProxy may run other requests in between.
local function read_clients(now)
  local start, found = os.clock(), { [ESTABLISHED] = {}, [CLOSE_WAIT] = {} }
  next_read = now + LONGEST_READ
  for _, name in ipairs({ "/proc/net/tcp", "/proc/net/tcp6" }) do
    local file = io.open(name)
    for line in file and file:lines() or pairs({}) do
      local own, other, state = line:match("^ *%d+: %x+:(%x+) %x+:(%x+) (%x+) ")
      if own and ports[own] and found[state] then
        found[state][own .. other] = true
      end
    end
    if file then
      file:close()
    end
  end
  open, closed, reads = found[ESTABLISHED], found[CLOSE_WAIT], reads + 1
  next_read = now + math.max(READ_SECONDS, SHARE * (os.clock() - start))
end

-- Returns a function that returns whether the client of a request has left, as far as that is known.
local function client_of(txn)
  -- Behind a proxy that announces its clients, the port is not that of the connection. HAProxy notices the end of others.
  if not txn.http or is_true(txn.f:fc_rcvd_proxy()) then
    return function() return false end
  end
  -- An earlier client may have had the same port.
  local own, first = string.format("%04X", txn.f:dst_port()), reads
  local pair = own .. string.format("%04X", txn.f:src_port())
  ports[own] = true
  return function(now)
    if now >= next_read then
      read_clients(now)
    end
    -- The kernel leaves out some connections while others come and go: one that is not listed has not left.
    return reads > first and closed[pair] and not open[pair]
  end
end

core.register_action("hold", { "http-req", "tcp-req" }, function(txn)
  local name, wait, has_left = txn.f:be_name(), FIRST_WAIT, client_of(txn)
  local now = clock()
  local function hold_end()
    return tonumber(holds:lookup(name) or 0)
  end
  report(name)
  while not is_true(txn.f:stopping()) and now < hold_end() do
    core.msleep(math.max(1, math.min(wait, math.ceil(1000 * (hold_end() - now)))))
    wait = math.min(wait + FIRST_WAIT, LONGEST_WAIT)
    now = clock()
    if has_left(now) then
      txn:done()
    end
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
