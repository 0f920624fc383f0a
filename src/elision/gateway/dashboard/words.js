// Numbers and words, as elision.lab.report.figures writes them; and text of sessions, made fit to be shown.

export const NOTHING = "–";
const fixed = (value, digits) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const known = (write) => (value) => (value === null || value === undefined ? NOTHING : write(value));

const amount = (v) => {
  if (v >= 1000) return `$${fixed(v, 0)}`;
  if (v >= 1 || v === 0) return `$${fixed(v, 2)}`;
  return v < 0.0001 ? "<$0.0001" : `$${fixed(v, v >= 0.1 ? 3 : 4)}`;
};
// What is less than a hundredth of a cent is nothing: sums of fractions leave such crumbs.
export const usd = known((v) => (Math.abs(v) < 1e-9 ? "$0.00" : v < 0 ? `−${amount(-v)}` : amount(v)));
/** A difference, with its sign. */
export const more = known((v) => (v > 1e-9 ? `+${usd(v)}` : usd(v)));
export const percent = known((v) => {
  if (v > 0 && v < 0.0005) return "<0.1\u00a0%";
  if (v >= 0.995 && v < 1) return `${fixed(Math.floor(v * 1000) / 10, 1)}\u00a0%`;
  return `${fixed(v * 100, v > 0 && v < 0.0095 ? 1 : 0)}\u00a0%`;
});
export const count = known((v) => fixed(v, 0));
export const tokens = known((v) => {
  for (const [size, unit] of [[1e6, "M"], [1e3, "k"]]) {
    if (v >= 0.9995 * size) return fixed(v / size, v / size < 99.95 ? 1 : 0) + unit;
  }
  return String(v);
});
export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many || `${one}s`}`;
/** The change from `raw` to `ours`: −47 %, +7 %. */
export const change = (ours, raw) => {
  if (!raw) return NOTHING;
  const share = ours / raw - 1;
  return Math.abs(share) < 0.0005 ? "±0\u00a0%" : (share < 0 ? "−" : "+") + percent(Math.abs(share));
};
/** What hiding saved, against sending everything with the same cache. */
export const hidingTile = (told, did = "") => [
  `${did}${told.hiding_usd < 0 ? "cost more" : "saved"} by hiding, net`,
  usd(Math.abs(told.hiding_usd)),
  `${usd(told.usd)} instead of ${usd(told.raw_usd - told.caching_usd)} (${change(told.usd, told.raw_usd - told.caching_usd)})${byCaching(told) && `; ${byCaching(told)}`}`,
  mood(told.hiding_usd),
];
/** What the prompt cache saved, where clients set no breakpoints and we do. */
export const byCaching = (told) => (told.caching_usd > 1e-6 ? `the gateway’s cache breakpoints saved ${usd(told.caching_usd)} more` : "");
/** One bill for a tree, by role; "" where only one role occurs. */
export const roles = (found) => {
  const shown = [["main", "main agents"], ["sub-agent", "sub-agents"], ["side", "side calls"]].filter(([role]) => found[role]);
  const all = shown.reduce((sum, [role]) => sum + found[role].usd, 0);
  return shown.length < 2 ? "" : `${usd(all)}, of which ${shown.map(([role, name]) => `${name} ${usd(found[role].usd)}`).join(", ")}.`;
};
export const mood = (saved) => (saved > 1e-6 ? "good" : saved < -1e-6 ? "bad" : "");

export const ago = (seconds) => {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.round(seconds / size)} ${unit} ago`;
  }
  return seconds < 10 ? "now" : `${Math.round(seconds)} s ago`;
};
export const moment = (at) => (at ? new Date(at * 1000).toLocaleTimeString() : NOTHING);

/** "1–12, 15, 20–22"; past eight stretches the last ones. */
export const stretches = (numbers) => {
  const found = [];
  for (const number of numbers) {
    const last = found[found.length - 1];
    if (last && number <= last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  const said = found.slice(-8).map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
  return (found.length > 8 ? "…, " : "") + said.join(", ");
};

// Control characters and what turns the direction of writing get a sign: seen, and without effect.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const sign = (letter) => {
  const code = letter.charCodeAt(0);
  if (code < 0x20) return `^${String.fromCharCode(code + 0x40)}`;
  return code === 0x7f ? "^?" : `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
};
export const visible = (text) => text.replace(/\r\n/g, "\n").replace(CONTROLS, sign).toWellFormed();
/** A text in at most `most` characters. */
export const brief = (text, most = 80) => (text.length > most ? `${visible(text.slice(0, most - 1))}…` : visible(text));

/** Characters of a task that name a session. */
const TASK = 60;
/** The names of sessions by id: the first characters of each task. Tasks that begin alike are named from where they part. */
export const names = (sessions) => {
  const groups = new Map(), found = new Map();
  for (const each of sessions) {
    const task = each.task || "";
    if (!task) found.set(each.id, brief(each.name) || "(no name)");
    else groups.set(task.slice(0, TASK), [...(groups.get(task.slice(0, TASK)) || []), each]);
  }
  for (const group of groups.values()) {
    const start = new Set(group.map((each) => each.task)).size > 1 ? parting(group.map((each) => each.task)) : 0;
    for (const each of group) found.set(each.id, `${start ? "… " : ""}${brief(each.task.slice(start), TASK + 1)}`);
  }
  return found;
};
/** Where the texts part, at the beginning of a word. */
const parting = (texts) => {
  let end = 0;
  while (texts.every((text) => end < text.length && text[end] === texts[0][end])) end += 1;
  return texts[0].lastIndexOf(" ", end - 1) + 1;
};

/** Why nothing was hidden, in words; the log's own words where there are no better ones. */
const MEANINGS = [
  [/^nothing eligible/, "Every result is new, small, protected or hidden already"],
  [/^rewrite not yet paid for/, "Keeping old results has not yet cost as much as rewriting the cache"],
  [/^rewrite pays/, "Keeping old results has cost as much as rewriting the cache"],
  [/^rewrite would not pay/, "The calls still expected would not earn back the rewrite"],
  [/^cap on raw/, "The bill would exceed 1.10 × the bill of sending everything"],
  [/^too small to cache/, "The prompt is below what the provider caches"],
  [/^another model's cache/, "Another model has this conversation cached and would write it again"],
  [/^fewer than/, "The schedule waits for more turns, to hide them in one rewrite"],
  [/^summary is being written/, "A summary is being written"],
  [/^summary rejected/, "A summary failed its checks; nothing changed"],
  [/^held/, "Nothing could be decided; the last decision stays"],
  [/^deferred/, "The provider binds the model’s thinking to the text before it"],
  [/^raw/, "This strategy hides nothing"],
];
export const meaning = (reason) => (MEANINGS.find(([begins]) => begins.test(reason)) || ["", visible(reason)])[1];
/** Reasons that differ in numbers alone are one. */
export const kind = (reason) => reason.replace(/\d[\d,.]*/g, "N");
