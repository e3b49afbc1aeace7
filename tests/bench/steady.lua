-- wrk's load at a steady rate: each connection pauses PAUSE_MS between its calls. 80-byte POSTs with equal tokens, over
-- KEYS keys in no order. Prints one JSON line at the end.
local pause, keys = tonumber(os.getenv("PAUSE_MS")), tonumber(os.getenv("KEYS"))
local body = string.rep("x", 80)

function delay()
    return math.random(0, 2 * pause)
end

function request()
    return wrk.format("POST", "/pay/v1/charges", {
        ["Content-Type"] = "application/octet-stream",
        ["Workflow-Key"] = string.format("order-%08d", math.random(0, keys - 1)),
        ["Fencing-Token"] = "42",
    }, body)
end

function done(summary, latency)
    local errors = summary.errors
    print(string.format(
        '{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "bad_status": %d, "bad_io": %d}',
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
