// The context over the calls: everything as a light area, what was sent as the sawtooth; rewrites, summaries and recalls as marks.
import { count, tokens } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
/** An SVG node; attributes with the value null are left out. */
export const draw = (name, attributes = {}, ...children) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

const LEFT = 46, RIGHT = 10, TOP = 14, BOTTOM = 24, STRIP = 26, GAP = 30;
const nice = (rough) => {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= rough);
};
/** Round numbers up to `most`, about `wanted` of them. */
const ticks = (most, wanted) => {
  const step = Math.max(1, nice(most / wanted));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, place) => place * step);
};
const path = (points) => points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const area = (points, ground) =>
  points.length ? `${path(points)}L${points.at(-1)[0].toFixed(1)} ${ground}L${points[0][0].toFixed(1)} ${ground}Z` : "";

/** Sizes of the prompts with nothing hidden. A call that only returns what was recalled is not made then: 0, so the one before it stays. */
const plain = (sizes) => {
  let newest = sizes.find((size) => size > 0) ?? 0;
  return sizes.map((size) => (newest = size || newest));
};

/** The scales of a chart `width` pixels wide. */
const scales = (calls, width) => {
  const high = width < 480 ? 190 : 250;
  const most = Math.max(1, ...calls.map((call) => Math.max(call.tokens.raw, call.tokens.after)));
  const ground = TOP + high;
  const step = (width - LEFT - RIGHT) / Math.max(1, calls.length - 1);
  return {
    width, ground, step, most, strip: ground + GAP, height: ground + GAP + STRIP + BOTTOM,
    x: (place) => (calls.length === 1 ? (LEFT + width - RIGHT) / 2 : LEFT + place * step),
    y: (size) => ground - (size / most) * (high - 6),
    at: (x) => Math.max(0, Math.min(calls.length - 1, Math.round((x - LEFT) / step))),
  };
};

const axes = (calls, s) => {
  const group = draw("g");
  for (const size of ticks(s.most, s.width < 480 ? 4 : 5)) {
    group.append(draw("line", { class: "grid", x1: LEFT, x2: s.width - RIGHT, y1: s.y(size), y2: s.y(size) }));
    group.append(draw("text", { x: LEFT - 8, y: s.y(size) + 4, "text-anchor": "end" }, tokens(size).replace(".0", "")));
  }
  const bottom = s.height - 6;
  for (const number of ticks(calls.length, s.width < 480 ? 4 : 9)) {
    if (!number || number > calls.length) continue;
    group.append(draw("text", { x: s.x(number - 1), y: bottom, "text-anchor": number === calls.length ? "end" : "middle" }, count(number)));
  }
  group.append(draw("text", { x: LEFT - 8, y: bottom, "text-anchor": "end" }, "call"));
  group.append(draw("text", { x: LEFT, y: s.strip - 8 }, "share of the prompt read from cache"));
  group.append(draw("line", { class: "grid", x1: LEFT, x2: s.width - RIGHT, y1: s.strip + STRIP, y2: s.strip + STRIP }));
  group.append(draw("text", { x: LEFT - 8, y: s.strip + 9, "text-anchor": "end" }, "100 %"));
  return group;
};

/** Green as reported; pale as simulated if the provider reported nothing. */
const hits = (calls, s) => {
  const group = draw("g");
  const wide = Math.max(0.8, Math.min(12, s.step * 0.8));
  calls.forEach((call, place) => {
    const bill = call.bill;
    const prompt = bill.input + bill.cache_write + bill.cache_read;
    const share = call.hit === null ? (prompt ? bill.cache_read / prompt : 0) : call.hit;
    if (share <= 0) return;
    const high = share * STRIP;
    group.append(draw("rect", {
      class: call.hit === null ? "hit simulated" : "hit", x: s.x(place) - wide / 2, y: s.strip + STRIP - high, width: wide, height: high,
    }));
  });
  return group;
};

const diamond = (x, y, r) => `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`;
const marks = (calls, s) => {
  const group = draw("g");
  calls.forEach((call, place) => {
    const x = s.x(place), y = s.y(call.tokens.after);
    const began = place > 0 && call.epoch > calls[place - 1].epoch;
    if (began) group.append(draw("line", { class: "epoch", x1: x, x2: x, y1: TOP, y2: s.ground }));
    if (call.head_changed) group.append(draw("path", { class: "head-mark", d: `M${x - 4} ${TOP - 8}l8 8m0 -8l-8 8` }));
    if (call.recalled.length) group.append(draw("path", { class: "recall-mark", d: `M${x} ${s.ground - 9}l6 9h-12Z` }));
    if (call.summarized) group.append(draw("path", { class: "summary-mark", d: diamond(x, y, 6.5) }));
    else if (began) group.append(draw("circle", { class: "epoch-dot", cx: x, cy: y, r: 4 }));
  });
  return group;
};

/** The chart of `calls`, and how to point at one: {node, at(x), point(place) -> {x, y}}. */
export const context = (calls, width) => {
  const s = scales(calls, width);
  const raw = plain(calls.map((call) => call.tokens.raw)).map((size, place) => [s.x(place), s.y(Math.max(size, calls[place].tokens.after))]);
  const sent = calls.map((call, place) => [s.x(place), s.y(call.tokens.after)]);
  const line = draw("line", { class: "cursor", y1: TOP, y2: s.strip + STRIP });
  const dot = draw("circle", { class: "cursor-dot", r: 4.5 });
  const node = draw(
    "svg", { width, height: s.height, viewBox: `0 0 ${width} ${s.height}`, "aria-hidden": "true" },
    draw("path", { class: "raw-area", d: area(raw, s.ground) }),
    draw("path", { class: "sent-area", d: area(sent, s.ground) }),
    axes(calls, s), hits(calls, s),
    draw("path", { class: "raw-line", d: path(raw) }),
    draw("path", { class: "sent-line", d: path(sent) }),
    marks(calls, s), line, dot,
  );
  const point = (place) => {
    const [x, y] = sent[place];
    for (const end of ["x1", "x2"]) line.setAttribute(end, x);
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", y);
    return { x, y };
  };
  return { node, at: s.at, point };
};

/** A session's small picture: (raw, sent) points in a box of 100 × 30. */
export const spark = (points) => {
  const most = Math.max(1, ...points.map(([raw]) => raw));
  const x = (place) => (points.length === 1 ? 50 : (place / (points.length - 1)) * 100);
  const y = (size) => 29 - (size / most) * 27;
  const shape = (which) => points.map((point, place) => [x(place), y(point[which])]);
  return draw(
    "svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("path", { class: "raw-area", d: area(shape(0), 30) }),
    draw("path", { class: "sent-area", d: area(shape(1), 30) }),
    draw("path", { class: "raw-line", d: path(shape(0)), "vector-effect": "non-scaling-stroke" }),
    draw("path", { class: "sent-line", d: path(shape(1)), "vector-effect": "non-scaling-stroke" }),
  );
};

/** The signs that occur in the chart of `calls`: pairs of a small drawing and a word. */
export const signs = (calls) => {
  const sign = (...shapes) => draw("svg", { width: 18, height: 12, "aria-hidden": "true" }, ...shapes);
  const began = (call, place) => place > 0 && call.epoch > calls[place - 1].epoch;
  const cached = (call) => call.bill.cache_read > 0;
  return [
    [true, () => draw("path", { class: "raw-line", d: "M0 6H18" }), "nothing hidden"],
    [true, () => draw("path", { class: "sent-line", d: "M0 6H18" }), "sent"],
    [calls.some((call, place) => began(call, place) && !call.summarized), () => draw("circle", { class: "epoch-dot", cx: 9, cy: 6, r: 4 }), "cache rewrite"],
    [calls.some((call) => call.summarized), () => draw("path", { class: "summary-mark", d: diamond(9, 6, 6) }), "summary"],
    [calls.some((call) => call.recalled.length), () => draw("path", { class: "recall-mark", d: "M9 1l6 9h-12Z" }), "recall"],
    [calls.some((call) => call.head_changed), () => draw("path", { class: "head-mark", d: "M5 2l8 8m0 -8l-8 8" }), "head changed"],
    [calls.some((call) => call.hit > 0), () => draw("rect", { class: "hit", x: 4, y: 1, width: 10, height: 10 }), "cache hits, reported"],
    [calls.some((call) => call.hit === null && cached(call)), () => draw("rect", { class: "hit simulated", x: 4, y: 1, width: 10, height: 10 }), "cache hits, simulated"],
  ].filter(([occurs]) => occurs).map(([, shape, word]) => [sign(shape()), word]);
};
