// Passes the page's data to plotly.js with the colours and sizes of this browser; plotly.js draws
// everything.
(() => {
  "use strict";

  // Distinguishable with every kind of colour vision (after Okabe and Ito) on both backgrounds.
  const COLOURS = {
    light: ["#5b6670", "#0072b2", "#c24e00", "#00795c", "#a8437f", "#8a6d00", "#3b4cc0", "#000000"],
    dark: ["#aab4be", "#56b4e9", "#ff9445", "#2fc89d", "#e78ac3", "#e6c229", "#97a5ff", "#ffffff"],
  };
  // usr, sys, softirq, iowait, steal, idle: none is the colour of a series.
  const PARTS = {
    light: ["#5c2e0e", "#b9855a", "#7fa8a8", "#c9b2d9", "#e6a0a0", "#d8dde2"],
    dark: ["#c9986b", "#8a6248", "#5f8a8a", "#8d76a3", "#a86b6b", "#39424d"],
  };
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star", "cross", "hexagon"];
  const NARROW = 560;
  const root = document.documentElement;
  const night = window.matchMedia("(prefers-color-scheme: dark)");
  let wish = "auto";
  let printing = false;

  const dark = () => !printing && (wish === "dark" || (wish === "auto" && night.matches));

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  const pick = (list, index) => list[index % list.length];

  // The trace of a line, of bars or of a part of a stack in the current colours.
  function painted(trace) {
    const hues = dark() ? COLOURS.dark : COLOURS.light;
    const parts = dark() ? PARTS.dark : PARTS.light;
    const meta = trace.meta;
    const result = { ...trace, hovertemplate: "%{hovertext}<extra></extra>" };
    if (meta.part !== undefined) {
      result.marker = { color: pick(parts, meta.part), line: { width: 0 } };
      if (meta.target) {
        result.marker.pattern = { shape: "/", size: 5, solidity: 0.25, fgcolor: colour("--panel"), fillmode: "overlay" };
      }
      return result;
    }
    const hue = pick(hues, meta.colour);
    result.marker = { color: hue, size: 7, symbol: pick(SYMBOLS, meta.colour + meta.dash) };
    if (meta.published) {
      result.marker = { color: hue, size: 10, symbol: "star-open", line: { width: 2 } };
    }
    if (meta.hollow && trace.type === "scatter") {
      const { symbol } = result.marker;
      result.marker.symbol = meta.hollow.map((hollow) => (hollow ? `${symbol}-open` : symbol));
      result.marker.line = { width: 2 };
    } else if (meta.hollow) {
      result.marker.line = { color: hue, width: 1.5 };
      result.marker.color = meta.hollow.map((hollow) => (hollow ? "rgba(0,0,0,0)" : hue));
    }
    if (meta.rings) {
      result.marker = { color: hue, size: 16, symbol: "circle-open", line: { width: 2.5 } };
    }
    if (trace.type === "scatter") {
      result.line = { color: hue, width: 2, dash: pick(DASHES, meta.dash) };
    } else if (meta.dash > 0) {
      result.marker.pattern = { shape: pick(["", "/", "x", "."], meta.dash), fgcolor: colour("--panel"), fillmode: "overlay" };
    }
    if (trace.error_y) {
      result.error_y = { ...trace.error_y, color: hue, thickness: 1.3, width: 3 };
    }
    return result;
  }

  // Fewer ticks if there is not enough room.
  function thinned(axis, room) {
    if (!axis.ticktext || axis.ticktext.length * room.each <= room.all) {
      return axis;
    }
    const step = Math.ceil((axis.ticktext.length * room.each) / room.all);
    const kept = (_, index) => index % step === 0;
    return { ...axis, tickvals: axis.tickvals.filter(kept), ticktext: axis.ticktext.filter(kept) };
  }

  function layout(chart, place) {
    const { clientWidth: width, clientHeight: height } = place;
    const narrow = width < NARROW;
    const lines = {
      gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--soft"),
      automargin: true, fixedrange: narrow,
    };
    const longest = Math.max(1, ...(chart.layout.xaxis.ticktext || []).map((text) => text.length));
    const words = chart.layout.xaxis.type === "category";
    const room = { all: Math.max(100, width - 70), each: 7 * Math.min(longest, 8) + 8 };
    const x = words ? chart.layout.xaxis : thinned(chart.layout.xaxis, room);
    const font = { family: "inherit", size: printing ? 9 : narrow ? 11 : 12, color: colour("--text") };
    const title = (axis) => ({ ...axis.title, font: { size: font.size }, standoff: 8 });
    const right = chart.layout.yaxis2;
    const shapes = (chart.layout.shapes || []).map((shape) => ({
      ...shape, layer: "below", line: { width: 0 }, fillcolor: colour("--soft"), opacity: 0.18,
    }));
    return {
      ...chart.layout,
      ...(right && { yaxis2: { ...lines, ...right, title: title(right), showgrid: false } }),
      shapes,
      width,
      height,
      xaxis: { ...lines, ...x, title: title(x), showgrid: !words },
      yaxis: { ...lines, ...chart.layout.yaxis, title: title(chart.layout.yaxis) },
      font,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 54, r: 12, t: 8, b: 44 },
      showlegend: chart.traces.length > 1,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: font.size } },
      hovermode: "closest",
      hoverlabel: { align: "left", namelength: -1, bgcolor: colour("--ground"), bordercolor: colour("--soft"), font: { color: colour("--text"), size: 12 } },
      dragmode: narrow || window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
      bargap: 0.25,
    };
  }

  const CONFIG = { displaylogo: false, displayModeBar: false };

  const charts = JSON.parse(document.getElementById("charts").textContent);
  const places = [...document.querySelectorAll("[data-chart]")];

  function draw(place) {
    const chart = charts[Number(place.dataset.chart)];
    place.dataset.drawn = "true";
    const traces = chart.traces.map(painted);
    // A series that the reader switched off stays off.
    (place.data || []).forEach((trace, index) => {
      if (traces[index]) {
        traces[index].visible = trace.visible;
      }
    });
    return Plotly.react(place, traces, layout(chart, place), CONFIG);
  }

  const isDrawn = (place) => place.dataset.drawn === "true";

  function paint() {
    root.toggleAttribute("data-dark", dark());
    // Paper has its own layout, in which charts are drawn before it is printed.
    root.toggleAttribute("data-printing", printing);
    root.style.colorScheme = dark() ? "dark" : "light";
    document.querySelectorAll("[data-set-theme]").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.dataset.setTheme === wish));
    });
    if (window.Plotly) {
      places.filter(isDrawn).forEach(draw);
    }
  }

  // The library is embedded compressed and inflated here.
  async function library() {
    const text = document.getElementById("library").textContent.trim();
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  function watch() {
    // Charts are drawn when they come near the window, so that a long report opens quickly.
    const near = new IntersectionObserver((entries) => {
      entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
        near.unobserve(entry.target);
        if (!isDrawn(entry.target)) {
          draw(entry.target);
        }
      });
    }, { rootMargin: "600px" });
    places.forEach((place) => near.observe(place));
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      // A phone's address bar comes and goes; only a change of width needs another layout.
      if (window.innerWidth !== width) {
        width = window.innerWidth;
        places.filter(isDrawn).forEach(draw);
      }
    });
  }

  // A line of CSV as RFC 4180 has it.
  const line = (values) => values.map((value) => {
    const text = String(value ?? "");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",");

  const plain = (html) => new DOMParser().parseFromString(html, "text/html").body.textContent;

  // The points of a chart as it draws them, in the units of its axes.
  function points(chart) {
    const { xaxis, yaxis, yaxis2 } = chart.layout;
    const labelled = chart.traces.some((trace) => trace.text);
    const value = [yaxis, yaxis2].filter(Boolean).map((axis) => plain(axis.title.text)).join(" or ");
    const head = ["series", plain(xaxis.title.text), value, "minus", "plus"];
    if (labelled) head.push("best at");
    const rows = chart.traces.flatMap((trace) => (trace.x || []).map((x, index) => {
      const plus = trace.error_y?.array?.[index];
      const row = [plain(trace.name), x, trace.y[index], trace.error_y?.arrayminus?.[index] ?? plus, plus];
      return labelled ? [...row, trace.text?.[index]] : row;
    }));
    return [head, ...rows];
  }

  const words = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));

  function save(name, lines) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.map(line).join("\r\n") + "\r\n"], { type: "text/csv" }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  function button(text, label, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  }

  // Each figure's data as CSV, and each chart as a picture.
  function offer(figure) {
    const place = figure.querySelector("[data-chart]");
    const title = figure.querySelector("h4").dataset.title;
    const name = title.toLowerCase().replace(/[^a-z0-9.]+/g, "-").replace(/^-|-$/g, "");
    const tools = document.createElement("div");
    tools.className = "tools";
    tools.append(button("CSV", `${title} as CSV`, () => {
      save(`${name}.csv`, place ? points(charts[Number(place.dataset.chart)]) : words(figure.querySelector("table")));
    }));
    if (place) {
      tools.append(button("PNG", `${title} as a picture`, async () => {
        await draw(place);
        const { clientWidth: width, clientHeight: height } = place;
        await Plotly.downloadImage(place, { format: "png", scale: 2, width, height, filename: name });
      }));
    }
    figure.prepend(tools);
  }

  const SCALES = {
    ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3,
    K: 1e3, M: 1e6, G: 1e9,
  };

  // What a cell of a table is sorted by: its number in the smallest unit, or its text.
  function weight(text) {
    const found = /^([−-]?[\d,]*\.?\d+)\s*([A-Za-zµ]*)/.exec(text);
    if (!found) {
      return { number: NaN, text };
    }
    const number = Number(found[1].replaceAll(",", "").replace("−", "-"));
    return { number: number * (SCALES[found[2]] ?? 1), text };
  }

  // Numbers go before words, in both directions.
  function compare(one, other, turn) {
    if (Number.isNaN(one.number) || Number.isNaN(other.number)) {
      const both = Number.isNaN(one.number) && Number.isNaN(other.number);
      return both ? turn * one.text.localeCompare(other.text) : Number.isNaN(one.number) - Number.isNaN(other.number);
    }
    return turn * (one.number - other.number);
  }

  function sort(head, index) {
    const turn = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    [...head.parentElement.cells].forEach((cell) => cell.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", turn > 0 ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, weight: weight(row.cells[index].textContent.trim()) }));
    rows.sort((one, other) => compare(one.weight, other.weight, turn));
    body.append(...rows.map(({ row }) => row));
  }

  function sortable(table) {
    [...table.tHead.rows[0].cells].forEach((head, index) => {
      const act = document.createElement("button");
      act.type = "button";
      act.append(...head.childNodes);
      act.addEventListener("click", () => sort(head, index));
      head.append(act);
    });
  }

  const drawAll = () => Promise.all(places.filter((place) => !isDrawn(place)).map(draw));

  document.querySelectorAll("[data-set-theme]").forEach((button) => {
    button.addEventListener("click", () => {
      wish = button.dataset.setTheme;
      paint();
    });
  });
  night.addEventListener("change", paint);
  window.addEventListener("beforeprint", () => {
    printing = true;
    paint();
    if (window.Plotly) {
      drawAll();
    }
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    paint();
  });
  document.querySelectorAll("table.grid").forEach(sortable);
  paint();
  library().then(() => {
    watch();
    document.querySelectorAll("figure").forEach(offer);
    window.weftReport = { drawAll, charts: charts.length };
  }).catch((error) => {
    const fault = document.getElementById("library-fault");
    fault.hidden = false;
    fault.textContent = `This browser cannot unpack the charts (${error}); the tables show all numbers.`;
    places.forEach((place) => { place.hidden = true; });
    document.querySelectorAll("figure details").forEach((details) => { details.open = true; });
  });
})();
