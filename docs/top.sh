#!/usr/bin/env bash
# Writes docs/top.svg: what `weft top` shows of a target under two loads, as text in a picture.
#
#     WEFT=target/release/weft docs/top.sh
set -euo pipefail
cd "$(dirname "$0")/.."
weft=$(realpath "${WEFT:?the binary}") picture=$PWD/docs/top.svg
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
nqn=nqn.2024-01.org.example:disks
cat > target.toml << EOF
[[port]]
listen = "tcp://127.0.0.1:24421"
[[subsystem]]
nqn = "$nqn"
namespace = [{ memory = "256MiB" }, { memory = "256MiB", delay-read = "200us" }]
EOF
WEFT_LOG=error "$weft" target --config target.toml --control unix:control > log 2>&1 &
for _ in $(seq 100); do [ -S control ] && break || sleep 0.1; done
load() {
    "$weft" bench "nvme-tcp://127.0.0.1:24421/$nqn?nsid=$1" --hostnqn "nqn.2014-08.org.example:$2" --runtime 8 --time_based \
        --bs 4k --rw "$3" --iodepth "$4" > /dev/null 2>&1 &
}
load 1 web randrw 4
load 2 batch randread 16
sleep 4
COLUMNS=80 "$weft" top --control unix:control --once > top.txt
awk -v lines="$(wc -l < top.txt)" '
    BEGIN {
        width = 80 * 8.4 + 24; height = lines * 18 + 24
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", width, height, width, height
        print "<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1e1e24\"/>"
        print "<g font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"14\" fill=\"#e4e4e8\">"
    }
    {
        gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;"); gsub(/>/, "\\&gt;")
        printf "<text x=\"12\" y=\"%d\" xml:space=\"preserve\">%s</text>\n", NR * 18 + 8, $0
    }
    END { print "</g>\n</svg>" }' top.txt > "$picture"
cat top.txt
