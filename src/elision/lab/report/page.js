// The page around the charts, and the chart of contexts. Text from a recording reaches the document through textContent alone.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const none = { strategies: [], columns: [], runs: [], rows: [], series: [] };
  const study = byId("study") ? JSON.parse(byId("study").textContent) : none;
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

  // ---- tooltip: pairs of a name and a value, a line each
  const tip = byId("tip");
  const showTip = (event, pairs) => {
    tip.replaceChildren();
    tip.hidden = !pairs;
    if (!pairs) return;
    for (const [name, text] of pairs) {
      const line = make("div");
      if (name !== "strategy") line.append(make("span", name));
      line.append(make("span", text));
      tip.append(line);
    }
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18) + "px";
  };
  for (const chart of document.querySelectorAll(".chart:not(#context)")) {
    chart.addEventListener("pointerleave", () => showTip());
    chart.addEventListener("pointermove", (event) => {
      const told = event.target.dataset.tip;
      showTip(event, told && told.split("\n").map((line) => line.split("\t")));
    });
  }

  // ---- context per call: a line per strategy, dots at cache rewrites, diamonds where a summary was written
  const chooser = byId("run");
  const chart = byId("context");
  const lines = new Map();
  for (const [run, strategy, tokens, rewrites, summaries] of study.series) {
    if (!lines.has(run)) lines.set(run, []);
    const [slot, dash] = study.looks[strategy];
    lines.get(run).push({ name: study.strategies[strategy], slot, dash, tokens, rewrites, summaries: new Set(summaries) });
  }
  const boxes = [...document.querySelectorAll("input[data-strategy]")];
  const off = new Set(boxes.filter((box) => !box.checked).map((box) => study.strategies[Number(box.dataset.strategy)]));
  const listed = () => (lines.get(Number(chooser.value)) || []).filter(({ name }) => !off.has(name));

  const draw = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const roundSteps = (most, wanted) => {
    const power = 10 ** Math.floor(Math.log10(Math.max(1, most / wanted)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= most / wanted) || 1;
    return Array.from({ length: Math.floor(most / step) + 1 }, (_, place) => place * step);
  };
  const LEFT = 46, RIGHT = 12, TOP = 24, HIGH = 300, BOTTOM = TOP + HIGH;
  // Where a call and a size are in the chart of the run that is chosen.
  const measure = () => {
    const width = Math.max(200, chart.clientWidth);
    const last = Math.max(1, ...listed().map(({ tokens }) => tokens.length));
    const most = Math.max(1, ...listed().map(({ tokens }) => tokens.reduce((a, b) => Math.max(a, b), 0)));
    const step = (width - LEFT - RIGHT) / Math.max(1, last - 1);
    return { width, last, most, step, x: (call) => LEFT + (call - 1) * step, y: (size) => BOTTOM - (size / most) * HIGH };
  };
  const drawContext = () => {
    if (!chooser) return;
    const { width, last, most, x, y } = measure();
    const svg = draw("svg", { class: "drawn", width, height: BOTTOM + 44, viewBox: `0 0 ${width} ${BOTTOM + 44}` });
    svg.append(draw("text", { x: 0, y: 12 }, "context, tokens"), draw("text", { x: (LEFT + width) / 2, y: BOTTOM + 40, "text-anchor": "middle" }, "call"));
    for (const size of roundSteps(most, 5)) {
      svg.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(size), y2: y(size) }));
      svg.append(draw("text", { x: LEFT - 8, y: y(size) + 4, "text-anchor": "end" }, write.tokens(size).replace(".0", "")));
    }
    for (const call of roundSteps(last, Math.max(3, width / 140))) {
      if (call) svg.append(draw("text", { class: "tick", x: x(call), y: BOTTOM + 20, "text-anchor": call === last ? "end" : "middle" }, String(call)));
    }
    for (const { slot, dash, tokens } of listed()) {
      const points = tokens.map((size, place) => `${x(place + 1).toFixed(1)},${y(size).toFixed(1)}`).join(" ");
      svg.append(draw("polyline", { class: `line c-${slot}`, points, "stroke-dasharray": dash[1] ? dash.join(" ") : "none" }));
    }
    for (const { slot, tokens, rewrites, summaries } of listed()) {
      for (const call of new Set([...rewrites, ...summaries])) {
        const [cx, cy] = [x(call), y(tokens[call - 1])];
        const shape = summaries.has(call)
          ? draw("path", { class: `event c-${slot}`, d: `M${cx} ${cy - 7}l7 7l-7 7l-7 -7Z` })
          : draw("circle", { class: `event c-${slot}`, cx, cy, r: 2.8 });
        svg.append(shape);
      }
    }
    chart.querySelector("svg")?.remove();
    chart.prepend(svg);
  };
  const setUpContext = () => {
    if (!chooser) return;
    for (const run of lines.keys()) {
      const option = make("option", `${study.runs[run].name} (${write.count(study.runs[run].calls)} calls)`);
      option.value = String(run);
      chooser.append(option);
    }
    chooser.value = String(study.first);
    chooser.addEventListener("change", drawContext);
    for (const box of boxes) {
      box.addEventListener("change", () => {
        const name = study.strategies[Number(box.dataset.strategy)];
        if (box.checked) off.delete(name); else off.add(name);
        drawContext();
      });
    }
    let drawn = 0;
    new ResizeObserver(() => {
      if (chart.clientWidth !== drawn) drawContext();
      drawn = chart.clientWidth;
    }).observe(chart);
    drawContext();
    setUpCrosshair();
  };
  // A line at the call under the pointer, and the sizes of all lines there.
  const setUpCrosshair = () => {
    const rule = make("div", undefined, "crosshair");
    rule.hidden = true;
    chart.append(rule);
    const hide = () => { rule.hidden = true; tip.hidden = true; };
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("pointermove", (event) => {
      const { width, last, step, x } = measure();
      const place = event.clientX - chart.getBoundingClientRect().left;
      if (place < LEFT - 4 || place > width - RIGHT + 4 || !listed().length) return hide();
      const call = Math.min(last, Math.max(1, Math.round((place - LEFT) / step) + 1));
      rule.hidden = false;
      rule.style.left = `${x(call)}px`;
      rule.style.top = `${TOP}px`;
      rule.style.height = `${HIGH}px`;
      const sizes = [["call", write.count(call)]];
      for (const { name, tokens, rewrites, summaries } of listed()) {
        if (call > tokens.length) continue;
        const mark = summaries.has(call) ? ", summary" : rewrites.includes(call) ? ", cache rewrite" : "";
        sizes.push([name, write.tokens(tokens[call - 1]) + mark]);
      }
      showTip(event, sizes);
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
  const look = (column) => [column.kind === "word" ? "word" : "", column.extra ? "extra" : ""].join(" ").trim();
  const cell = (column, value, run) => {
    if (column.key !== "run") {
      const plain = make("td", shown(column.kind, value), look(column));
      plain.dataset.title = column.title;
      return plain;
    }
    const td = make("td", undefined, "name");
    td.title = value; // all of it, where the cell shows its end
    const name = make(lines.has(run) ? "button" : "span");
    name.append(make("bdi", value));
    if (lines.has(run)) {
      name.type = "button";
      name.title = `${value}: show its context above`;
      name.addEventListener("click", () => {
        chooser.value = String(run);
        drawContext();
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
      const th = make("th", undefined, look(column));
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
  setUpContext();
})();
