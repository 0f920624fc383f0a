// The page around the charts. Text from a recording reaches the document through textContent alone.
"use strict";
(() => {
  const study = JSON.parse(document.getElementById("study").textContent);
  const byId = (id) => document.getElementById(id);
  const make = (tag, text, className) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };

  // ---- numbers, as figures.py writes them
  const NOTHING = "–";
  const fixed = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const write = {
    usd: (v) => (v >= 1000 ? "$" + fixed(v, 0) : v >= 1 || v === 0 ? "$" + fixed(v, 2) : v < 0.0001 ? "<$0.0001" : "$" + fixed(v, v >= 0.1 ? 3 : 4)),
    times: (v) => fixed(v, 2),
    change: (v) => (Math.abs(v - 1) < 0.0005 ? "±0 %" : (v < 1 ? "−" : "+") + write.percent(Math.abs(v - 1))),
    percent: (v) => (v > 0 && v < 0.0005 ? "<0.1" : v >= 0.995 && v < 1 ? fixed(Math.floor(v * 1000) / 10, 1) : fixed(v * 100, v > 0 && v < 0.0095 ? 1 : 0)) + " %",
    count: (v) => fixed(v, 0),
    tokens: (v) => {
      for (const [size, unit] of [[1e6, "M"], [1e3, "k"]]) {
        if (v >= 0.9995 * size) return fixed(v / size, v / size < 99.95 ? 1 : 0) + unit;
      }
      return String(v);
    },
    word: (v) => v,
  };
  const shown = (kind, value) => (value === null || value === undefined ? NOTHING : write[kind](value));

  // ---- tooltip
  const tip = byId("tip");
  const tooltip = (handler, event, item, value) => {
    tip.replaceChildren();
    tip.hidden = !value;
    if (!value) return;
    for (const [name, text] of Object.entries(value)) {
      if (text === null || text === undefined || text === "") continue;
      const line = make("div");
      if (name !== "strategy") line.append(make("span", name));
      line.append(make("span", String(text)));
      tip.append(line);
    }
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18) + "px";
  };

  // ---- charts
  // Vega places the labels of points where they hide neither a point nor one another; Vega-Lite has no word for that.
  const placeLabels = (vega) => {
    const labels = vega.marks.find((mark) => mark.name === "labels_marks");
    if (!labels) return vega;
    const text = labels.encode.update;
    labels.from = { data: "points_marks" };
    labels.encode = { enter: { text: { field: study.labels || "datum.strategy" }, fill: text.fill, fontSize: text.fontSize, font: { value: study.charts.recall.config.font } }, update: {} };
    labels.interactive = false;
    labels.transform = [{
      // At least a pixel: a window may be of no width for a moment.
      type: "label", size: [{ signal: "max(width, 1)" }, { signal: "max(height, 1)" }], padding: 6,
      anchor: ["right", "left", "top-right", "bottom-right", "top-left", "bottom-left", "top", "bottom"], offset: [4],
    }];
    return vega;
  };
  const options = { mode: "vega-lite", ast: true, actions: false, defaultStyle: false, renderer: "svg", tooltip, patch: placeLabels };
  const draw = (id) => (study.charts[id] ? vegaEmbed(byId(id), study.charts[id], options).then((result) => result.view) : null);

  // ---- context per call
  const chooser = byId("run");
  const lines = new Map();
  for (const [run, strategy, tokens, rewrites, summaries] of study.series) {
    if (!lines.has(run)) lines.set(run, []);
    lines.get(run).push({ name: study.strategies[strategy], tokens, rewrites, summaries });
  }
  const boxes = [...document.querySelectorAll("input[data-strategy]")];
  const off = new Set(boxes.filter((box) => !box.checked).map((box) => study.strategies[Number(box.dataset.strategy)]));
  let contextView = null;
  const pointsOf = (run) => {
    const calls = [], marks = [];
    for (const { name, tokens, rewrites, summaries } of lines.get(run) || []) {
      if (off.has(name)) continue;
      tokens.forEach((size, place) => calls.push({ strategy: name, call: place + 1, tokens: size }));
      const written = new Set(summaries);
      for (const call of new Set([...rewrites, ...summaries])) {
        const kind = written.has(call) ? "summary" : "rewrite";
        const event = kind === "summary" ? "a summary was written" : "the cache was rewritten";
        marks.push({ strategy: name, call, tokens: tokens[call - 1], context: write.tokens(tokens[call - 1]), kind, event });
      }
    }
    return { calls, marks };
  };
  const showRun = () => {
    if (!contextView) return;
    const points = pointsOf(Number(chooser.value));
    return contextView.data("calls", points.calls).data("marks", points.marks).runAsync();
  };
  const setUpContext = async () => {
    if (!chooser) return;
    for (const run of lines.keys()) {
      const option = make("option", `${study.runs[run].name} (${write.count(study.runs[run].calls)} calls)`);
      option.value = String(run);
      chooser.append(option);
    }
    chooser.value = String(study.first);
    chooser.addEventListener("change", showRun);
    for (const box of boxes) {
      box.addEventListener("change", () => {
        const name = study.strategies[Number(box.dataset.strategy)];
        if (box.checked) off.delete(name); else off.add(name);
        showRun();
      });
    }
    // The first run is part of the chart as it is drawn, so that its axes never see an empty one.
    const { calls, marks } = pointsOf(study.first);
    study.charts.context.layer[0].data.values = calls;
    study.charts.context.layer[1].data.values = marks;
    contextView = await draw("context");
    setUpCrosshair();
  };
  // A line at the call under the pointer, and the sizes of all lines there.
  const setUpCrosshair = () => {
    const chart = byId("context");
    const rule = make("div", undefined, "crosshair");
    rule.hidden = true;
    chart.append(rule);
    const hide = () => { rule.hidden = true; tip.hidden = true; };
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("pointermove", (event) => {
      const drawing = chart.querySelector("svg").getBoundingClientRect();
      const [left, top] = contextView.origin();
      const place = event.clientX - drawing.left - left;
      const listed = (lines.get(Number(chooser.value)) || []).filter(({ name }) => !off.has(name));
      const last = Math.max(0, ...listed.map(({ tokens }) => tokens.length));
      if (place < 0 || place > contextView.width() || last === 0) return hide();
      const call = Math.min(last, Math.max(1, Math.round(contextView.scale("x").invert(place))));
      rule.hidden = false;
      rule.style.left = `${drawing.left - chart.getBoundingClientRect().left + left + contextView.scale("x")(call)}px`;
      rule.style.top = `${top}px`;
      rule.style.height = `${contextView.height()}px`;
      const sizes = {};
      for (const { name, tokens, rewrites, summaries } of listed) {
        if (call > tokens.length) continue;
        const mark = summaries.includes(call) ? ", summary" : rewrites.includes(call) ? ", cache rewrite" : "";
        sizes[name] = write.tokens(tokens[call - 1]) + mark;
      }
      tooltip(null, event, null, { call: write.count(call), ...sizes });
    });
  };

  // ---- runs, to sort
  const table = byId("runs");
  const only = byId("only");
  let sorting = { column: study.columns.findIndex((column) => column.key === "usd"), down: true };
  const compare = (a, b) => {
    const [x, y] = [a[sorting.column], b[sorting.column]];
    if (x === null || y === null) return (x === null) - (y === null); // what is not known stays last
    const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return sorting.down ? -order : order;
  };
  // Rows with the names that their places in lists mean.
  const spelled = study.rows.map(([run, strategy, ...rest]) => [study.runs[run].name, study.strategies[strategy], study.runs[run].reader, ...rest, run]);
  const showAll = byId("more");
  const SHOWN = 300;
  let limit = SHOWN;
  const cell = (column, value, run) => {
    if (column.key !== "run") return make("td", shown(column.kind, value), column.kind === "word" ? "word" : "");
    const td = make("td", undefined, "name");
    td.title = value; // all of it, where the cell shows its end
    const name = make(lines.has(run) ? "button" : "span");
    name.append(make("bdi", value));
    if (lines.has(run)) {
      name.type = "button";
      name.title = `${value}: show its context above`;
      name.addEventListener("click", () => {
        chooser.value = String(run);
        showRun();
        byId("context").closest("section").scrollIntoView({ block: "start" });
      });
    }
    td.append(name);
    return td;
  };
  // One strategy is chosen: its name in every row would say nothing.
  const isShown = (column) => column.key !== "strategy" || only.value === "";
  const showRows = () => {
    const wanted = spelled.filter((row) => only.value === "" || row[1] === only.value).sort(compare);
    const body = make("tbody");
    for (const row of wanted.slice(0, limit)) {
      const tr = make("tr");
      study.columns.forEach((column, place) => {
        if (isShown(column)) tr.append(cell(column, row[place], row[row.length - 1]));
      });
      body.append(tr);
    }
    table.tBodies[0].replaceWith(body);
    showAll.hidden = wanted.length <= limit;
    showAll.textContent = `Show all ${write.count(wanted.length)} rows`;
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      head.hidden = !isShown(study.columns[place]);
      head.setAttribute("aria-sort", place === sorting.column ? (sorting.down ? "descending" : "ascending") : "none");
    });
  };
  const setUpTable = () => {
    if (!table) return;
    study.strategies.forEach((name) => {
      const option = make("option", name);
      option.value = name;
      only.append(option);
    });
    only.value = study.featured;
    only.addEventListener("change", showRows);
    showAll.addEventListener("click", () => { limit = Infinity; showRows(); });
    const head = make("tr");
    study.columns.forEach((column, place) => {
      const th = make("th", undefined, column.kind === "word" ? "word" : "");
      th.scope = "col";
      const button = make("button", column.title.replace(/^(×|vs) /, "$1\u00a0")); // never broken there
      button.type = "button";
      button.addEventListener("click", () => {
        const down = place === sorting.column ? !sorting.down : column.kind !== "word";
        sorting = { column: place, down };
        showRows();
      });
      th.append(button);
      head.append(th);
    });
    table.tHead.replaceChildren(head);
    showRows();
  };

  setUpTable();
  Promise.all([draw("cost"), draw("recall"), draw("spent"), setUpContext()]).then(() => {
    document.documentElement.dataset.drawn = "yes";
  });
})();
