-- A fence built by hand, as its users would: nginx asks Redis before it forwards. One round trip decides (and, with
-- effects, writes the intent); a second one, after the answer, writes the outcome. Connections to Redis are kept.
local redis = require "nginx.redis"

local _M = {}

local ADMIT = [[
local highest, token = redis.call('GET', KEYS[1]), ARGV[1]
if highest and (#token < #highest or (#token == #highest and token < highest)) then
    redis.call('RPUSH', KEYS[2], ARGV[2])
    return highest
end
if highest ~= token then redis.call('SET', KEYS[1], token) end
if ARGV[3] ~= '' then redis.call('HSET', KEYS[3], ARGV[3], ARGV[2]) end
return false
]]
local SETTLE = [[
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[2])
]]

local socket_path, process, number = nil, nil, 0
local shas = {}

function _M.init(path)
    socket_path = path
end

local function sha_of(script)
    if not shas[script] then
        local digest = ngx.sha1_bin(script)
        shas[script] = digest:gsub(".", function(byte) return string.format("%02x", byte:byte()) end)
    end
    return shas[script]
end

local function run(script, ...)
    local connection = redis:new()
    connection:set_timeout(5000)
    local done, why = connection:connect("unix:" .. socket_path, {pool_size = 256})
    if not done then
        return nil, why
    end
    local result
    result, why = connection:evalsha(sha_of(script), ...)
    if not result and why and why:find("NOSCRIPT", 1, true) then
        result, why = connection:eval(script, ...)
    end
    connection:set_keepalive(60000, 256)
    return result, why
end

local function say(status, text)
    ngx.status = status
    ngx.header["Content-Type"] = "application/json"
    ngx.header["Content-Length"] = #text
    ngx.print(text)
    return ngx.exit(status)
end

-- access_by_lua
function _M.admit(effects)
    local key, token = ngx.var.http_workflow_key, ngx.var.http_fencing_token
    if not key or not token or not token:find("^[1-9]%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?$") then
        return say(400, '{"reason":"malformed-token"}')
    end
    local subject = table.concat({ngx.var.msec, "pay", "default", key, token, ngx.var.request_method, ngx.var.uri,
        ngx.var.remote_addr, ngx.var.remote_port}, " ")
    local id = ""
    if effects then
        process = process or ngx.now() .. "-" .. ngx.worker.pid() .. "-"
        number = number + 1
        id = process .. number
        ngx.ctx.id, ngx.ctx.subject = id, subject
    end
    local highest, why = run(ADMIT, 3, "fence:" .. key, "drops", "intents", token, subject, id)
    if not highest then
        ngx.log(ngx.ERR, "redis: ", why)
        return say(503, '{"reason":"store-unavailable"}')
    end
    if highest ~= ngx.null then
        ngx.ctx.id = nil
        return say(412, '{"reason":"stale-token","key":"' .. key .. '","token":"' .. token .. '","highest":"' .. highest .. '"}')
    end
end

local function settle(_, id, record)
    local result, why = run(SETTLE, 2, "intents", "audit", id, record)
    if not result then
        ngx.log(ngx.ERR, "redis: ", why)
    end
end

-- log_by_lua: Redis can't be asked there, a timer can.
function _M.outcome()
    local id = ngx.ctx.id
    if id then
        local record = ngx.ctx.subject .. " sent " .. ngx.status .. " " .. ngx.var.request_length .. " " ..
            ngx.var.body_bytes_sent .. " " .. ngx.var.request_time
        local done, why = ngx.timer.at(0, settle, id, record)
        if not done then
            ngx.log(ngx.ERR, "timer: ", why)
        end
    end
end

return _M
