// Passes the page's data to plotly.js with the colours and sizes of this browser; plotly.js draws
// everything.
(() => {
  "use strict";

  // Distinguishable with every kind of colour vision (after Okabe and Ito) on both backgrounds.
  const COLOURS = {
    light: ["#5b6670", "#0072b2", "#c24e00", "#00795c", "#a8437f", "#8a6d00", "#3b4cc0", "#000000"],
    dark: ["#aab4be", "#56b4e9", "#ff9445", "#2fc89d", "#e78ac3", "#e6c229", "#97a5ff", "#ffffff"],
  };
  // usr, sys, softirq, iowait, steal, idle
  const PARTS = {
    light: ["#0072b2", "#c24e00", "#8a6d00", "#a8437f", "#3b4cc0", "#d8dde2"],
    dark: ["#56b4e9", "#ff9445", "#e6c229", "#e78ac3", "#97a5ff", "#39424d"],
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
    if (meta.knee) {
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

  function layout(chart, width) {
    const narrow = width < NARROW;
    const lines = {
      gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--soft"),
      automargin: true, fixedrange: narrow,
    };
    const longest = Math.max(1, ...(chart.layout.xaxis.ticktext || []).map((text) => text.length));
    const words = chart.layout.xaxis.type === "category";
    const room = { all: Math.max(100, width - 70), each: 7 * Math.min(longest, 8) + 8 };
    const x = words ? chart.layout.xaxis : thinned(chart.layout.xaxis, room);
    const font = { family: "inherit", size: narrow ? 11 : 12, color: colour("--text") };
    const title = (axis) => ({ ...axis.title, font: { size: font.size }, standoff: 8 });
    return {
      ...chart.layout,
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

  const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false };

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
    return Plotly.react(place, traces, layout(chart, place.clientWidth), CONFIG);
  }

  const isDrawn = (place) => place.dataset.drawn === "true";

  function paint() {
    root.toggleAttribute("data-dark", dark());
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
  paint();
  library().then(() => {
    watch();
    window.weftReport = { drawAll, charts: charts.length };
  }).catch((error) => {
    const fault = document.getElementById("library-fault");
    fault.hidden = false;
    fault.textContent = `This browser cannot unpack the charts (${error}); the tables show all numbers.`;
    places.forEach((place) => { place.hidden = true; });
    document.querySelectorAll("figure details").forEach((details) => { details.open = true; });
  });
})();
