-- wrk's summary as the last line it prints, in JSON. Times are microseconds.
done = function(summary, latency)
  local errors = summary.errors
  print(string.format(
    '{"requests":%d,"micros":%d,"p50":%d,"p99":%d,"error_answers":%d,"lost":%d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout
  ))
end
