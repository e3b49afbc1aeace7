-- wrk's load: 80-byte POSTs with equal tokens, spread over 1,000 keys. Prints one JSON line at the end.
local requests = {}
local next_one = 0

function init()
    local body = string.rep("x", 80)
    for number = 1, 1000 do
        requests[number] = wrk.format("POST", "/pay/v1/charges", {
            ["Content-Type"] = "application/octet-stream",
            ["Workflow-Key"] = "order-" .. number,
            ["Fencing-Token"] = "42",
        }, body)
    end
end

function request()
    next_one = next_one % #requests + 1
    return requests[next_one]
end

function done(summary, latency)
    local errors = summary.errors
    print(string.format(
        '{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "bad_status": %d, "bad_io": %d}',
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
