# crunched_numbers_performance.json of bergstartup/NVMeoFTCP-Characterization as a table.
to_entries[] | .value as {$latency, $iops} | .key
| capture("^(?<w>(local|remote)_(bench|perf_n?poll))_ioup_.*QD(?<d>\\d+)_P(?<p>\\d+)_(?<s>\\d+k)$")
| (.p | tonumber) as $p | ([$p, 10] | min) as $c | ($latency.mean / 1000) as $m
| (if .w[:1] == "l" then 0 else $c end) as $t
| [.w + ":" + .s, $p * (.d | tonumber), $c, $t, 0, $iops.mean, $m, $m, 0, 0, 0,
  ($latency.percentile | to_entries[] | select((.key | tonumber) <= 99.9)
   | "\((.key | tonumber) / 100):\(.value / 1000)")]
| join(" ")
