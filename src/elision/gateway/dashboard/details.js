// One session: its figures, calls, costs, and what was hidden. Text of sessions reaches the page by textContent alone.
import { context, draw, signs } from "./chart.js";
import { brief, change, count, hidingTile, kind, meaning, moment, mood, more, NOTHING, percent, plural, roles, stretches, tokens, usd, visible } from "./words.js";

export const byId = (id) => document.getElementById(id);
export const make = (tag, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};
/** Set a node's text if it is another one: an unchanged node is not announced again, and keeps its selection. */
export const say = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};
/** Bring `list` to show `items` by key; nodes that stay are kept, with the focus in them. */
export const keyed = (list, items, keyOf, build, update = () => {}) => {
  const known = new Map([...list.children].map((node) => [node.dataset.key, node]));
  const focused = document.activeElement;
  let place = list.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const node = known.get(key) || build(item);
    node.dataset.key = key;
    known.delete(key);
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else list.insertBefore(node, place);
  }
  for (const node of known.values()) node.remove();
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
};
/** tiles: [name, value, more, class]. */
export const tiles = (list, told) =>
  keyed(list, told, ([name]) => name, ([name]) => {
    const tile = make("div"), value = make("dd");
    value.append(make("strong"), make("small"));
    tile.append(make("dt", name), value);
    return tile;
  }, (tile, [, value, more, className]) => {
    say(tile.querySelector("strong"), value);
    tile.querySelector("strong").className = className || "";
    say(tile.querySelector("small"), more || "");
  });

/** A cache hit share: as reported, and as simulated. */
export const hitTile = (figures) => [
  "cache hits, as reported", percent(figures.hit),
  figures.reported
    ? `of ${tokens(figures.billed_tokens)} prompt tokens; simulated ${percent(figures.simulated)}`
    : `no usage reported; simulated ${percent(figures.simulated)}`,
];

/** What providers billed; of a played provider, that nobody did. */
export const billedTile = (figures) => {
  const real = figures.reported - figures.played;
  if (!figures.reported) return ["billed, as reported", NOTHING, "no usage reported"];
  if (!real) return ["billed", "nothing", `a played provider answered; a real one would bill ${usd(figures.played_usd)}`];
  const other = figures.played ? `, without ${plural(figures.played, "call")} of a played provider` : "";
  return ["billed, as reported", usd(figures.billed_usd - figures.played_usd), `for ${count(real)} of ${plural(figures.calls, "call")}${other}`];
};

/** Instead of the raw prompt of a call that only returns what was recalled. */
const UNMADE = "no such call";
const PARTS = [
  ["input", "prompt, uncached"], ["cache_write", "cache write"], ["cache_read", "cache read"],
  ["output", "output"], ["summarizer", "summarizer"],
];

/** The parts of the page that show one session. open(session, result) opens a hidden text. */
export class Details {
  constructor(open) {
    this.open = open;
    this.told = null;
    this.calls = [];
    this.place = -1;
    this.all = false;
    this.shown = new Map();
    this._setUp();
  }

  _setUp() {
    const chart = byId("chart");
    chart.addEventListener("keydown", (event) => this._key(event));
    for (const kind of ["pointermove", "pointerdown"]) {
      chart.addEventListener(kind, (event) => {
        if (!this.picture) return;
        const box = chart.getBoundingClientRect();
        this._point(this.picture.at(event.clientX - box.left), event.clientY - box.top);
      });
    }
    for (const kind of ["pointerleave", "blur"]) chart.addEventListener(kind, () => { byId("tip").hidden = true; });
    new ResizeObserver(() => this._draw()).observe(chart);
    byId("more-hidden").addEventListener("click", () => {
      this.all = !this.all;
      this._hidden();
    });
  }

  /** Show a session; `calls` are all of its calls. */
  show(told, calls) {
    const other = !this.told || this.told.id !== told.id;
    const last = this.place === this.calls.length - 1;
    if (other) {
      Object.assign(this, { all: false, shown: new Map() });
      byId("tip").hidden = true;
    }
    this.told = told;
    this.calls = calls;
    this.place = other || last || this.place >= calls.length ? calls.length - 1 : this.place;
    this._about();
    this._draw();
    this._costs();
    this._hidden();
    this._summaries();
    this._held();
    this._events();
    this._none();
  }

  /** One line for the parts that have nothing to show. */
  _none() {
    const none = [["summaries", "summaries"], ["events", "stop hints, recalls or other events"]].filter(([part]) => byId(`${part}-part`).hidden).map(([, words]) => words);
    byId("none").hidden = !none.length || !this.calls.length;
    say(byId("none"), `This session has no ${none.join(", and no ")}.`);
  }

  /** A row's key: handles and calls repeat in every session, and in a session whose earlier calls changed. */
  _rowKey(...parts) {
    return JSON.stringify([this.told.id, this.told.edition, ...parts]);
  }

  /** Whether the value that a part shows is another one than before. */
  _new(part, value) {
    const text = JSON.stringify(value);
    if (this.shown.get(part) === text) return false;
    this.shown.set(part, text);
    return true;
  }

  _about() {
    const told = this.told, f = told.figures;
    say(byId("name"), brief(told.task || told.name, 120) || "(no name)");
    say(byId("session-key"), visible(told.name));
    for (const format of ["csv", "json"]) byId(`export-${format}`).href = `/elision/api/sessions/${told.id}/calls.${format}`;
    byId("played").hidden = !f.played;
    say(byId("played"), f.played === f.reported
      ? "Played provider: recorded responses, at a simulated prompt cache. Nothing was billed."
      : `A played provider answered ${plural(f.played, "call")}. Nobody billed them.`);
    const list = told.price_list;
    const priced = list.own && list.name === told.model ? "" : `priced as ${list.name}${list.own ? "" : ", its own prices are unknown"}`;
    const dated = list.dated ? `prices of ${list.dated}` : "";
    say(byId("what"), [told.model || "no model named", told.api, told.strategy, priced, dated, plural(told.turns, "turn")].filter(Boolean).map(visible).join(" · "));
    this._kin();
    byId("shadow").hidden = !told.shadow;
    tiles(byId("session-tiles"), [
      hidingTile(f, told.shadow ? "would have " : ""),
      ["sent", tokens(f.sent_tokens), `of ${tokens(f.raw_tokens)} tokens, in ${plural(f.calls, "call")}`],
      hitTile(f),
      billedTile(f),
      ["cache rewrites", count(told.epochs - 1), Object.entries(told.rewrites).filter(([, n]) => n).map(([cause, n]) => `${n} × ${cause}`).join(", ")],
      ["hidden now", this._share(), this._shareOf()],
    ]);
  }

  _share() {
    const savings = this.told.savings;
    return savings.observation_tokens ? percent(savings.hidden_tokens / savings.observation_tokens) : NOTHING;
  }

  _shareOf() {
    const { masked = 0, folded = 0, covered = 0, visible: shown = 0, folded_tokens: less = 0 } = this.told.savings;
    const folds = folded ? `, ${folded} folded (${tokens(less)} tokens less)` : "";
    return `of tool result tokens: ${masked} masked${folds}, ${covered} summarized, ${shown} visible`;
  }

  _kin() {
    const told = this.told, line = byId("kin");
    if (!this._new("kin", [told.parent, told.branches, told.shared, told.tree])) return;
    line.replaceChildren();
    const link = (id, name) => {
      const anchor = make("a");
      anchor.append(make("bdi", visible(name)));
      anchor.href = `#s/${id}`;
      return anchor;
    };
    if (told.parent) {
      line.append(`${told.relation || "child"} of `, link(told.parent_id, told.parent));
      if (told.shared) line.append(`; its first ${plural(told.shared, "call")} are shared and count there in the totals`);
    }
    told.branches.forEach((each, place) => {
      line.append(place ? ", " : told.parent ? " · branches: " : "branches: ", link(each.id, each.name), ` (${each.relation || "child"})`);
    });
    const bill = roles(told.tree.roles);
    if (bill) line.append(line.childNodes.length ? " · " : "", `the tree of ${plural(told.tree.sessions, "session")}: ${bill}`);
    line.hidden = !line.childNodes.length;
  }

  // ---- chart
  _draw() {
    const chart = byId("chart"), wide = Math.floor(chart.clientWidth);
    byId("context-part").hidden = !this.calls.length;
    if (!wide || !this.calls.length) return;
    const seen = this.calls.map((call) => [call.tokens, call.epoch, call.hit, call.recalled.length, Boolean(call.summarized), call.head_changed]);
    if (this._new("chart", [wide, seen])) {
      this.picture = context(this.calls, wide);
      chart.replaceChildren(this.picture.node);
      chart.setAttribute("aria-valuemax", this.calls.length);
      byId("chart-key").replaceChildren(...signs(this.calls).map(([drawing, word]) => {
        const item = make("li");
        item.append(drawing, word);
        return item;
      }));
    }
    this._mark(this.place);
  }

  _key(event) {
    const many = Math.max(1, Math.round(this.calls.length / 10));
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -many, PageUp: many, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || !this.calls.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this._point(Math.max(0, Math.min(this.calls.length - 1, this.place + steps[event.key])));
  }

  /** Point at a call, and tell its figures beside it. y: of the pointer; without one, of the call. */
  _point(place, y) {
    const at = this._mark(place);
    if (at) this._tip(this.calls[place], at.x, y === undefined ? at.y : y);
  }

  _tip(call, x, y) {
    const tip = byId("tip"), facts = make("dl");
    const prompt = call.bill.input + call.bill.cache_write + call.bill.cache_read;
    for (const [name, value] of [
      ["sent", `${tokens(call.tokens.after)} tokens`],
      ["nothing hidden", call.tokens.raw ? `${tokens(call.tokens.raw)} tokens` : UNMADE],
      ["cache hits", call.hit === null ? `${percent(prompt ? call.bill.cache_read / prompt : 0)}, simulated` : percent(call.hit)],
      ["saved so far", usd(call.costs.hiding)],
    ]) facts.append(make("dt", name), make("dd", value));
    const did = this._did(call).join("; ");
    tip.replaceChildren(make("strong", `Call ${call.call}`), facts, make("p", did ? `${did[0].toUpperCase()}${did.slice(1)}.` : `Hid nothing new: ${meaning(call.reason)}.`));
    tip.hidden = false;
    const wide = byId("chart").clientWidth, gap = 14, width = tip.offsetWidth;
    const left = x + gap + width <= wide ? x + gap : x - gap - width;
    tip.style.left = `${Math.max(0, Math.min(left, wide - width))}px`;
    tip.style.top = `${Math.max(0, Math.min(y + gap, byId("chart").clientHeight - tip.offsetHeight))}px`;
  }

  _mark(place) {
    const call = this.calls[place];
    if (!call || !this.picture) return null;
    this.place = place;
    const at = this.picture.point(place);
    const chart = byId("chart");
    chart.setAttribute("aria-valuenow", place + 1);
    chart.setAttribute("aria-valuetext", this._spoken(call, place));
    if (this._new("call", [place, call])) byId("call").replaceChildren(...this._call(call, place));
    return at;
  }

  _spoken(call, place) {
    const did = this._did(call).join(", ") || meaning(call.reason);
    const everything = call.tokens.raw ? `of ${tokens(call.tokens.raw)} tokens` : `tokens, ${UNMADE}`;
    return `call ${call.call}, ${place + 1} of ${this.calls.length}: sent ${tokens(call.tokens.after)} ${everything}, ${plural(call.epoch - 1, "cache rewrite")} so far; ${visible(did)}`;
  }

  _did(call) {
    const sum = (list) => list.reduce((total, each) => total + call.results[each.handle].tokens, 0);
    const said = [];
    if (call.masked.length) said.push(`masked ${plural(call.masked.length, "tool result")} of ${tokens(sum(call.masked))} tokens`);
    if (call.clipped.length) said.push(`cut ${plural(call.clipped.length, "tool result")} to fit`);
    if (call.folded.length) said.push(`folded repeated lines of ${plural(call.folded.length, "tool result")}, ${tokens(sum(call.folded))} → ${tokens(call.folded.reduce((total, each) => total + call.results[each.handle].left, 0))} tokens`);
    if (call.unfolded.length) said.push(`showed ${plural(call.unfolded.length, "folded tool result")} whole again`);
    if (call.summarized) said.push(`summarized turns ${call.summarized.first}–${call.summarized.last}`);
    if (call.recalled.length) said.push(`${plural(call.recalled.length, "tool result")} recalled after it`);
    if (call.head_changed) said.push("system prompt, tools or task changed");
    if (call.learned_window) said.push(`the provider refused it: its window is ${tokens(call.learned_window)} tokens`);
    return said;
  }

  *_call(call, place) {
    yield make("h3", `Call ${call.call}`);
    yield make("span", ` ${place + 1} of ${this.calls.length}${call.at ? `, ${moment(call.at)}` : ""}${call.model && call.model !== this.told.model ? `, ${visible(call.model)}` : ""}`, "quiet");
    const facts = make("dl", undefined, "facts");
    const usage = call.usage;
    for (const [name, value] of [
      ["tokens sent", tokens(call.tokens.after)],
      ["tokens, nothing hidden", call.tokens.raw ? tokens(call.tokens.raw) : UNMADE],
      ["cache rewrites so far", count(call.epoch - 1)],
      ["prompt", usd(call.bill.usd)],
      ["same, nothing hidden", usd(call.raw_bill.usd)],
      ["cache hits, as reported", usage ? percent(call.hit) : NOTHING],
      usage && usage.played ? ["played, a real bill would be", usd(call.billed_usd)] : ["billed, as reported", usd(call.billed_usd)],
      ["saved by hiding so far, net", usd(call.costs.hiding)],
    ]) {
      const fact = make("div");
      fact.append(make("dt", name), make("dd", value));
      facts.append(fact);
    }
    yield facts;
    if (usage) yield make("p", `Reported: ${count(usage.input)} uncached, ${count(usage.cache_write)} written to cache, ${count(usage.cache_read)} read from it, ${count(usage.output)} output.`, "quiet");
    const did = this._did(call);
    const done = did.join("; ");
    const said = make("p", done ? `${done[0].toUpperCase()}${done.slice(1)}. ` : "");
    const acted = call.masked.length || call.clipped.length || call.summarized;
    said.append(make("span", `${acted ? "Why" : "Masked nothing new"}: ${meaning(call.reason)}.`, "quiet"));
    yield said;
  }

  // ---- costs
  _costs() {
    const f = this.told.figures;
    byId("cost-part").hidden = !this.calls.length;
    if (!this._new("costs", f)) return;
    say(byId("cost-said"), `Computed from the log, at list prices. Sent is as the provider reported it, or else as a simulated prompt cache serves it; nothing hidden is simulated${f.caching_usd > 1e-6 ? ". The client sets no cache breakpoints, so sending everything would not use the cache" : ""}.`);
    const most = Math.max(f.usd, f.raw_usd, 1e-12);
    byId("bars").replaceChildren(
      this._bar("sent", f.parts, f.usd, most, change(f.usd, f.raw_usd)),
      this._bar("nothing hidden", f.raw_parts, f.raw_usd, most, ""),
    );
    byId("costs").replaceChildren(this._head(["part", "sent", "nothing hidden", "difference"]), this._costRows(f));
  }

  _bar(name, parts, total, most, share) {
    const row = make("div", undefined, "row"), svg = draw("svg", { viewBox: "0 0 1000 18", preserveAspectRatio: "none", "aria-hidden": "true" });
    let x = 0;
    for (const [part] of PARTS) {
      const wide = (parts[part] / most) * 1000;
      if (wide > 0) svg.append(draw("rect", { class: `c-${part}`, x, y: 0, width: Math.max(0.1, wide - 1), height: 18 }));
      x += wide;
    }
    row.append(make("strong", name), make("span", `${usd(total)}${share ? ` (${share})` : ""}`), svg);
    return row;
  }

  _head(titles) {
    const head = make("thead"), row = make("tr");
    for (const title of titles) {
      const cell = make("th", title);
      cell.scope = "col";
      row.append(cell);
    }
    head.append(row);
    return head;
  }

  _costRows(f) {
    const body = make("tbody");
    const add = (name, ours, raw, className, dot) => {
      const row = make("tr", undefined, className), title = make("th");
      title.scope = "row";
      if (dot) title.append(make("span", undefined, `dot c-${dot}`));
      title.append(name);
      row.append(title, make("td", usd(ours)), make("td", raw === null ? "" : usd(raw)));
      row.append(make("td", raw === null ? "" : more(ours - raw), raw === null ? "" : mood(raw - ours)));
      body.append(row);
    };
    for (const [part, name] of PARTS) if (f.parts[part] || f.raw_parts[part]) add(name, f.parts[part], f.raw_parts[part], "", part);
    if (f.recalls_usd) add("of it, recalls", f.recalls_usd, null, "quiet");
    add("total", f.usd, f.raw_usd, "sum");
    if (f.caching_usd > 1e-6) {
      for (const [name, saved] of [["of the difference, by hiding", f.hiding_usd], ["by the gateway’s cache breakpoints", f.caching_usd]]) {
        const row = make("tr", undefined, "quiet"), title = make("th", name);
        title.scope = "row";
        row.append(title, make("td", ""), make("td", ""), make("td", more(-saved), mood(saved)));
        body.append(row);
      }
    }
    return body;
  }

  // ---- what was hidden
  _hidden() {
    const found = new Map(), covers = this.calls.reduce((most, call) => Math.max(most, call.summary ? call.summary.covers : 0), 0);
    for (const [place, call] of this.calls.entries()) {
      const add = (each, how) => {
        const { command, tokens: size, left } = call.results[each.handle];
        found.set(each.handle, { handle: each.handle, tool: each.tool, text: each.text || "", command, size, left, call: call.call, place, how });
      };
      for (const each of call.folded) add({ ...each, text: notes(each.text) }, "folded");
      for (const handle of call.unfolded) if (found.get(handle)?.how === "folded") found.delete(handle);
      for (const each of call.masked) add(each, "masked");
      for (const each of call.clipped) add(each, "cut to fit");
      for (const each of call.covered) if (!found.has(each.handle)) add(each, "summarized");
    }
    const list = [...found.values()].sort((a, b) => b.place - a.place || turn(b) - turn(a));
    byId("hidden-part").hidden = !this.calls.length;
    say(byId("hidden-said"), list.length
      ? `${plural(list.length, "tool result")}, the newest first: what was called, and what the prompt has in its place. Open one to read the full text.`
      : "Nothing was hidden in this session so far.");
    const few = matchMedia("(max-width: 560px)").matches ? 5 : 10, shown = this.all ? list : list.slice(0, few);
    keyed(byId("hidden"), shown, (each) => this._rowKey(each.handle), (each) => this._gap(each), (node, each) => {
      say(node.querySelector(".how"), turn(each) <= covers ? "in the summary" : each.how);
    });
    const rest = byId("more-hidden");
    rest.hidden = list.length <= few;
    say(rest, this.all ? `Show the newest ${few}` : `Show all ${count(list.length)}`);
  }

  _gap(each) {
    const session = this.told.id;
    const item = make("li"), button = make("button", undefined, "open"), line = make("span", undefined, "line");
    button.type = "button";
    const tool = make("bdi", brief(each.tool) || "no tool named");
    const size = each.how === "summarized" ? `${tokens(each.size)} tokens` : `${tokens(each.size)} → ${tokens(each.left)} tokens`;
    line.append(make("span", each.handle, "handle"), tool, make("span", size, "size"), make("span", each.how, "how quiet"), make("span", `at call ${each.call}`, "when"));
    button.append(line);
    if (each.command) button.append(make("bdi", visible(each.command), "command"));
    if (each.text) {
      const text = make("bdi", visible(each.text), "placeholder");
      button.append(text);
    }
    button.addEventListener("click", () => this.open(session, each));
    item.append(button);
    return item;
  }

  // ---- summaries
  _summaries() {
    const made = [];
    for (const [place, call] of this.calls.entries()) {
      for (const failed of call.failed) made.push({ place, call, failed });
      if (call.summarized) made.push({ place, call, summary: call.summarized });
    }
    byId("summaries-part").hidden = !made.length;
    const spent = this.told.figures.parts.summarizer;
    say(byId("summaries-said"), `${plural(this.told.summaries, "summary", "summaries")} written, ${usd(spent)} for the summarizer${this.told.failed_summaries ? `; ${this.told.failed_summaries} rejected` : ""}.`);
    const key = (each) => this._rowKey(each.place, each.failed || null);
    keyed(byId("summaries"), made.reverse(), key, (each) => (each.failed ? this._failed(each) : this._summary(each)));
  }

  _summary({ call, summary }) {
    const item = make("li"), inside = make("div", undefined, "item"), line = make("div", undefined, "line");
    const route = summary.route === "model-free" ? "without a model" : `${usd(summary.usd)}, ${{ extend: "asked after the live prompt", fresh: "asked with its own prompt" }[summary.route] || visible(summary.route)}`;
    line.append(make("span", `turns ${summary.first}–${summary.last}`, "handle"), make("span", `${tokens(summary.tokens)} → ${tokens(summary.left)} tokens`, "size"), make("span", route, "quiet"), make("span", `at call ${call.call}`, "when"));
    inside.append(line);
    if (call.summary && call.summary.text) {
      const details = make("details");
      details.append(make("summary", "Read it"), make("pre", visible(call.summary.text)));
      inside.append(details);
    }
    item.append(inside);
    return item;
  }

  _failed({ call, failed }) {
    const item = make("li"), inside = make("div", undefined, "item"), line = make("div", undefined, "line");
    line.append(make("span", "rejected", "bad"), make("span", `${visible(failed.cause)}: ${visible(failed.reason)}`), make("span", failed.usd ? usd(failed.usd) : "", "size"), make("span", `at call ${call.call}`, "when"));
    inside.append(line);
    if (failed.retry_at > call.call) inside.append(make("div", `Next attempt at call ${failed.retry_at} or later.`, "quiet"));
    item.append(inside);
    return item;
  }

  // ---- decisions not taken
  _held() {
    const groups = new Map();
    let acted = 0;
    for (const call of this.calls) {
      if (call.masked.length || call.clipped.length || call.summarized || call.folded.length) acted += 1;
      else {
        const key = kind(call.reason);
        if (!groups.has(key)) groups.set(key, { reason: call.reason, same: true, calls: [] });
        const group = groups.get(key);
        group.same = group.same && group.reason === call.reason;
        group.calls.push(call.call);
      }
    }
    byId("held-part").hidden = !this.calls.length;
    const held = this.calls.length - acted;
    say(byId("held-said"), `${plural(held, "call")} of ${count(this.calls.length)} hid nothing new.`);
    const list = [...groups.entries()].sort((a, b) => b[1].calls.length - a[1].calls.length);
    byId("held").hidden = !list.length;
    if (!this._new("held", list)) return;
    const body = make("tbody");
    for (const [key, group] of list) body.append(this._reason(group.same ? group.reason : key, group.calls));
    byId("held").replaceChildren(this._head(["reason", "calls", "which"]), body);
  }

  _reason(reason, calls) {
    const row = make("tr"), title = make("th");
    title.scope = "row";
    const means = meaning(reason);
    title.append(make("bdi", means));
    if (means !== visible(reason)) title.append(make("div", `in the log: ${visible(reason)}`, "quiet small"));
    row.append(title, make("td", count(calls.length)), make("td", stretches([...new Set(calls)].sort((a, b) => a - b))));
    return row;
  }

  // ---- events
  _events() {
    const found = [];
    this.calls.forEach((call, place) => {
      if (call.stop) found.push({ place, call, word: "stop", text: `${call.stop.guard}: ${call.stop.value} of ${call.stop.limit}` });
      if (call.hint) found.push({ place, call, word: "stop hint", text: `no progress for ${call.hint.turns} turns: ${call.hint.why}` });
      if (call.head_changed) found.push({ place, call, word: "head changed", text: "system prompt, tools or task changed: the whole prompt is written to the cache again" });
      if (call.learned_window) found.push({ place, call, word: "window", text: `the provider refused this call: its window is ${count(call.learned_window)} tokens` });
      for (const each of call.recalled) found.push({ place, call, word: "recall", text: `${each.handle}, ${tokens(each.tokens)} tokens, by the ${each.by === "tool" ? "agent" : each.by}` });
    });
    byId("events-part").hidden = !found.length;
    const list = found.reverse().slice(0, 200);
    keyed(byId("events"), list, (each) => this._rowKey(each.place, each.word, each.text), (each) => {
      const item = make("li"), line = make("div", undefined, "line item");
      line.append(make("span", each.word, each.word.startsWith("stop") ? "warn" : "quiet"), make("bdi", visible(each.text)), make("span", `at call ${each.call.call}`, "when"));
      item.append(line);
      return item;
    });
  }
}

/** The lines that take the place of others in a folded or shortened result. */
const notes = (text) => (text || "").split("\n").filter((line) => /^\[.*(same as|as in|left out).*\]$/.test(line)).slice(0, 3).join("\n");
const turn = (each) => Number(each.handle.slice(1).split(".")[0]);
