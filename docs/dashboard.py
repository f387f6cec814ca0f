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


def measure(folder):
    """Runs target, loads and Prometheus; returns a function that answers a query over that time."""
    (folder / "target.toml").write_text(CONFIG)
    metrics, server = free_port(), free_port()
    scrape = {"job_name": "weft", "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}]}
    config = {"global": {"scrape_interval": f"{STEP}s"}, "scrape_configs": [scrape]}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    running = [
        subprocess.Popen([WEFT, "target", "--config", "target.toml", "--metrics", str(metrics)], **quiet),
        subprocess.Popen([PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=db",
                          f"--web.listen-address=127.0.0.1:{server}"], **quiet),
    ]
    time.sleep(5)
    began = time.time()
    for host, nsid, rw, depth, rate in [("web", 2, "randrw", 4, 4000), ("batch", 1, "randwrite", 32, 20000)]:
        words = ["--rw", rw, "--bs", "4k", "--iodepth", str(depth), "--time_based", "--runtime", str(SECONDS)]
        words += ["--hostnqn", f"nqn.2014-08.org.example:{host}", "--rate_iops", str(rate)]
        running.append(subprocess.Popen([WEFT, "bench", f"nvme-tcp://127.0.0.1:24422/{NQN}?nsid={nsid}", *words], **quiet))
        time.sleep(SECONDS / 4)
    time.sleep(SECONDS / 2)
    ended = time.time()

    def answer(query):
        for name in ("$host", "$subsystem"):
            query = query.replace(name, ".*")
        words = {"query": query.replace("$__rate_interval", "5s"), "start": began, "end": ended, "step": STEP}
        url = f"http://127.0.0.1:{server}/api/v1/query_range?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url) as reply:
            return began, json.load(reply)["data"]["result"]

    return running, answer


def label(form, labels):
    for name, value in labels.items():
        form = form.replace("{{%s}}" % name, value.replace("nqn.2014-08.org.example:", "").replace("nqn.2024-01.org.example:", ""))
    return " ".join(word for word in form.split() if "{{" not in word)


def lines(axes, panel, answer):
    factor, unit = UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    for target in panel["targets"]:
        began, series = answer(target["expr"])
        for one in series:
            points = [(float(at) - began, float(value) / factor) for at, value in one["values"] if value != "NaN"]
            axes.plot(*zip(*points), linewidth=1.2, label=label(target["legendFormat"], one["metric"]))
    axes.set_ylabel(unit)
    if panel["fieldConfig"]["defaults"]["unit"] == "s":
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))


def heat(axes, panel, answer):
    began, series = answer(panel["targets"][0]["expr"])
    series.sort(key=lambda one: float(one["metric"]["le"]))
    bounds = [float(one["metric"]["le"]) for one in series]
    at = sorted({float(t) for one in series for t, _ in one["values"]})
    table = [{float(t): float(v) for t, v in one["values"]} for one in series]
    cells = [[max(table[k].get(t, 0) - (table[k - 1].get(t, 0) if k else 0), 0) or float("nan") for t in at]
             for k in range(len(bounds) - 1)]
    edges = [bounds[0] / 2 * 1e6] + [bound * 1e6 for bound in bounds[:-1]]
    axes.pcolormesh([t - began for t in at] + [at[-1] - began + STEP], edges, cells, norm=LogNorm(), cmap="viridis")
    axes.set_yscale("log")
    axes.set_ylabel("µs")


def main():
    panels = json.loads((ROOT / "monitoring/dashboard.json").read_text())["panels"]
    with tempfile.TemporaryDirectory() as name:
        running, answer = measure(pathlib.Path(name))
        try:
            rows = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels)
            figure = plt.figure(figsize=(16, rows * 0.5), dpi=80)
            grid = figure.add_gridspec(rows, 24, hspace=3.2, wspace=5)
            for panel in panels:
                place = panel["gridPos"]
                axes = figure.add_subplot(grid[place["y"]:place["y"] + max(place["h"] - 2, 1), place["x"] + 1:place["x"] + place["w"]])
                if panel["type"] == "row":
                    axes.axis("off")
                    axes.set_title(panel["title"], loc="left", fontsize=13, fontweight="bold")
                    continue
                (heat if panel["type"] == "heatmap" else lines)(axes, panel, answer)
                axes.set_title(panel["title"], loc="left", fontsize=10)
                axes.tick_params(labelsize=7)
            figure.savefig(ROOT / "docs/dashboard.png", bbox_inches="tight")
        finally:
            for one in reversed(running):
                one.terminate()
                one.wait()


main()
