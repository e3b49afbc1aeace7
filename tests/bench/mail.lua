-- wrk's load for a mail route: fenced mails in JSON, a key each in turn. Prints one line of JSON at the end.
--   wrk ... -s mail.lua URL -- KEYS FILE
-- FILE: the JSON of the mail.
local keys, head, tail
local count = 0

function init(args)
    keys = tonumber(args[1])
    local file = assert(io.open(args[2], "rb"))
    local body = file:read("*a")
    file:close()
    head = "POST /mail HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        .. #body .. "\r\nFencing-Token: 42\r\nWorkflow-Key: order-"
    tail = "\r\n\r\n" .. body
end

function request()
    count = count + 1
    return head .. string.format("%08d", count % keys) .. tail
end

function done(summary, latency)
    local errors = summary.errors
    print(string.format('{"mails": %d, "seconds": %f, "p50": %f, "p99": %f, "failed": %d}',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
        errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
