#!/usr/bin/env python3
"""Draws docs/dashboard.png: the panels of monitoring/dashboard.json as Prometheus answers them for
a target under two loads, of which one has a rate limit. It is drawn with matplotlib, not by Grafana.

    cargo xtask prometheus                      # Prometheus from Debian, in target/prometheus
    pip install matplotlib
    WEFT=target/release/weft docs/dashboard.py
"""
import json, os, pathlib, socket, subprocess, sys, tempfile, time, urllib.parse, urllib.request

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import LogNorm

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEFT = os.environ.get("WEFT") or sys.exit("WEFT names the binary")
PROMETHEUS = ROOT / "target/prometheus/usr/bin/prometheus"
NQN, SECONDS, STEP = "nqn.2024-01.org.example:disks", 60, 1
CONFIG = f"""
[[port]]
listen = "tcp://127.0.0.1:24422"
[[subsystem]]
nqn = "{NQN}"
namespace = [{{ memory = "256MiB" }}, {{ memory = "256MiB", delay-read = "200us" }}]
[[rate-limit]]
host = "nqn.2014-08.org.example:batch"
rate-iops = 5000
"""
UNITS = {"iops": (1, "IOPS"), "Bps": (1e6, "MB/s"), "s": (1e-6, "µs"), "percentunit": (0.01, "%"), "short": (1, "")}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def measure(folder, start):
    """Runs target, Prometheus and loads; returns where Prometheus answers, and from when to when."""
    (folder / "target.toml").write_text(CONFIG)
    metrics, server = free_port(), free_port()
    scrape = {"job_name": "weft", "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}]}
    config = {"global": {"scrape_interval": f"{STEP}s"}, "scrape_configs": [scrape]}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    start(WEFT, "target", "--config", "target.toml", "--metrics", str(metrics))
    start(PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=db",
          f"--web.listen-address=127.0.0.1:{server}")
    time.sleep(5)
    began = time.time()
    for host, nsid, rw, depth, rate in [("web", 2, "randrw", 4, 4000), ("batch", 1, "randwrite", 32, 20000)]:
        words = ["--rw", rw, "--bs", "4k", "--iodepth", str(depth), "--time_based", "--runtime", str(SECONDS)]
        words += ["--hostnqn", f"nqn.2014-08.org.example:{host}", "--rate_iops", str(rate)]
        start(WEFT, "bench", f"nvme-tcp://127.0.0.1:24422/{NQN}?nsid={nsid}", *words)
        time.sleep(SECONDS / 4)
    time.sleep(SECONDS / 2)
    return server, began, time.time()


def ask(server, began, ended, query):
    """The series of a panel's query: for each its labels, and its points in seconds since the begin."""
    query = query.replace("$host", ".*").replace("$subsystem", ".*").replace("$instance", ".*").replace("$__rate_interval", "5s")
    words = urllib.parse.urlencode({"query": query, "start": began, "end": ended, "step": STEP})
    with urllib.request.urlopen(f"http://127.0.0.1:{server}/api/v1/query_range?{words}") as reply:
        series = json.load(reply)["data"]["result"]
    points = lambda one: [(float(at) - began, float(value)) for at, value in one["values"] if value != "NaN"]
    return [(one["metric"], points(one)) for one in series if points(one)]


def label(form, labels):
    for name, value in labels.items():
        form = form.replace("{{%s}}" % name, value.rpartition(":")[2])
    return " ".join(word for word in form.split() if "{{" not in word)


def lines(axes, panel, answer):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    factor, shown = UNITS[unit]
    for target in panel["targets"]:
        for labels, points in answer(target["expr"]):
            times, values = zip(*points)
            axes.plot(times, [value / factor for value in values], linewidth=1.2, label=label(target["legendFormat"], labels))
    axes.set_ylabel(shown)
    if unit == "s":
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))


def heat(axes, panel, answer):
    series = sorted((float(labels["le"]), dict(points)) for labels, points in answer(panel["targets"][0]["expr"]))
    at = sorted({time for _, points in series for time in points})
    # A bucket has the commands of those below it as well; what is beyond the last bound is not drawn.
    below = [{}] + [points for _, points in series]
    cells = [[max(points.get(time, 0) - less.get(time, 0), 0) or float("nan") for time in at]
             for (_, points), less in zip(series[:-1], below)]
    edges = [bound * 1e6 for bound, _ in series[:-1]]
    axes.pcolormesh(at + [at[-1] + STEP], [edges[0] / 2] + edges, cells, norm=LogNorm(), cmap="viridis")
    axes.set_yscale("log")
    axes.set_ylabel("µs")


def draw(answer):
    panels = json.loads((ROOT / "monitoring/dashboard.json").read_text())["panels"]
    rows = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels)
    figure = plt.figure(figsize=(16, rows * 0.4), dpi=80)
    grid = figure.add_gridspec(rows, 24, hspace=1, wspace=1)
    for panel in panels:
        place = panel["gridPos"]
        x, y = place["x"], place["y"]
        # Below and beside it is room for the axis and for the legend.
        axes = figure.add_subplot(grid[y:y + max(place["h"] - 2, 1), x + 1:x + place["w"] - 2])
        axes.set_title(panel["title"], loc="left", fontsize=13 if panel["type"] == "row" else 10)
        if panel["type"] == "row":
            axes.axis("off")
            continue
        (heat if panel["type"] == "heatmap" else lines)(axes, panel, answer)
        axes.tick_params(labelsize=7)
    figure.savefig(ROOT / "docs/dashboard.png", bbox_inches="tight")


def main():
    running = []
    with tempfile.TemporaryDirectory() as name:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": name}
        try:
            place = measure(pathlib.Path(name), lambda *words: running.append(subprocess.Popen(words, **quiet)))
            draw(lambda query: ask(*place, query))
        finally:
            for one in reversed(running):
                one.terminate()
                one.wait()


main()
