-- wrk's load: fenced POSTs. Prints one line of JSON at the end.
--   wrk ... -s post.lua URL -- PATH KEYS ORDER TOKENS BODY
-- KEYS: over how many keys. ORDER: `turn` for one after the other, or `random`. TOKENS: `42` for always that one, `1000+`
-- for a new one each time from there on. BODY: bytes.
local path, keys, random, token, rising, head, tail
local count = 0

function init(args)
    path, keys, random = args[1], tonumber(args[2]), args[3] == "random"
    rising = args[4]:sub(-1) == "+"
    token = tonumber((args[4]:gsub("+", "")))
    local body = string.rep("x", tonumber(args[5]))
    head = "POST " .. path .. " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\nContent-Length: "
        .. #body .. "\r\nWorkflow-Key: order-"
    tail = "\r\n\r\n" .. body
    math.randomseed(42)
end

function request()
    count = count + 1
    local key = random and math.random(0, keys - 1) or count % keys
    return head .. string.format("%08d\r\nFencing-Token: %d", key, rising and token + count or token) .. tail
end

function done(summary, latency)
    local errors = summary.errors
    print(string.format(
        '{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "refused": %d, "failed": %d}',
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
