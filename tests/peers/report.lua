-- With CLIENT_REQUESTS set, each client sends so many requests, and then the next one begins: an address of
-- its own for each. Clients of an earlier run are other ones.
local per_client = tonumber(os.getenv("CLIENT_REQUESTS") or "")
if per_client then
  local sent, first = 0, os.time() % 200 * 65536
  request = function()
    local client = first + math.floor(sent / per_client)
    sent = sent + 1
    local address = string.format("10.%d.%d.%d", client / 65536 % 256, client / 256 % 256, client % 256)
    return wrk.format(nil, nil, { ["CF-Connecting-IP"] = address })
  end
end

-- wrk's summary as the last line it prints, in JSON. Times are microseconds.
done = function(summary, latency)
  local errors = summary.errors
  print(string.format(
    '{"requests":%d,"micros":%d,"p50":%d,"p99":%d,"error_answers":%d,"lost":%d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout
  ))
end
