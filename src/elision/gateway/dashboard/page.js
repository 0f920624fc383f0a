// The dashboard: polls the gateway's API, and shows what changed without moving what did not.
import { spark } from "./chart.js";
import { billedTile, byId, Details, hitTile, keyed, make, say, tiles } from "./details.js";
import { ago, brief, byCaching, change, count, hidingTile, mood, names, plural, roles, tokens, usd, visible } from "./words.js";

const API = "/elision/api/";
/** Milliseconds between two looks: usually, while logs are still being read, and while the gateway does not answer. */
const USUAL = 1500, SOON = 150, LATER = 5000;
const STEP = 20;

// ---- asking
const answers = new Map();
/** A question's answer, and whether it is another one than before. Raises Error with what the gateway said. */
const ask = async (slot, path) => {
  const known = answers.get(slot);
  const headers = known && known.path === path ? { "If-None-Match": known.tag } : {};
  const response = await fetch(API + path, { headers, cache: "no-store" });
  if (response.status === 304) return { value: known.value, fresh: false };
  const value = await response.json().catch(() => ({ error: `${response.status} ${response.statusText}` }));
  if (!response.ok) throw Object.assign(new Error(value.error || response.statusText), { status: response.status });
  answers.set(slot, { path, tag: response.headers.get("ETag"), value });
  return { value, fresh: true };
};

// ---- totals
/** The sum to lead with: what was saved, or, where all is shadow mode, what would have been. */
const leading = (told) => (told.would.calls && (told.shadow || !told.calls) ? { ...told, ...told.would, other: told.calls, was: false } : { ...told, was: true });
const showTotals = (whole) => {
  const told = leading(whole), none = told.sessions === 0;
  byId("empty").hidden = !none;
  byId("columns").hidden = none;
  // Of one session its own figures say it all.
  byId("totals").hidden = told.sessions < 2;
  say(byId("version"), `Elision ${whole.version}`);
  say(byId("headline"), headline(told));
  say(byId("scope"), scope(told));
  tiles(byId("totals").querySelector("dl"), [
    hidingTile(told, told.was ? "" : "would have "),
    hitTile(told),
    billedTile(told),
    ["sent", tokens(told.sent_tokens), `of ${tokens(told.raw_tokens)} tokens, in ${plural(told.calls, "call")}`],
    ["sessions live", count(told.live), `of ${plural(told.sessions, "session")}`],
    ["summarizer", usd(told.parts.summarizer), `${plural(told.summaries, "summary", "summaries")}${told.failed_summaries ? `, ${told.failed_summaries} not taken` : ""}`],
  ]);
};
const headline = (told) => {
  if (!told.sessions) return "Ready. Waiting for the first call.";
  if (!told.calls) return told.unread ? "Reading the store …" : "Sessions, but no call yet.";
  const [did, cost] = !told.was ? ["Would have saved", "Would have cost"] : ["Saved", "Cost"];
  const everything = told.raw_usd - told.caching_usd, share = change(told.usd, everything);
  if (told.hiding_usd < -1e-6) return `${cost} ${usd(-told.hiding_usd)} more than sending everything, by hiding (${share}).`;
  return told.hiding_usd > 1e-6 ? `${did} ${usd(told.hiding_usd)} net of ${usd(everything)} by hiding (${share}).` : "Nothing was saved by hiding yet.";
};
const scope = (told) => [
  told.was ? "" : "Shadow mode: requests were forwarded unchanged. All figures are hypothetical.",
  told.calls ? "Compared with sending everything, as a simulated prompt cache would serve it, less summaries, recalls and extra cache writes." : "",
  told.played && told.played === told.reported ? "A played provider answered: nothing was billed." : "",
  byCaching(told) && `In addition, ${byCaching(told)}.`,
  told.was && told.would.calls ? `Not counted: ${plural(told.would.calls, "call")} in shadow mode, in which hiding would have saved ${usd(told.would.hiding_usd)}.` : "",
  told.other ? `Not counted: ${plural(told.other, "call")} outside shadow mode.` : "",
  roles(told.roles),
  told.unread ? `${plural(told.unread, "session")} still to be read.` : "",
  told.faults ? `${plural(told.faults, "session")} cannot be read.` : "",
  told.unpriced ? `${plural(told.unpriced, "session")} without known prices${told.unpriced_models.length ? ` (${told.unpriced_models.map(visible).join(", ")})` : ""}: priced as Anthropic’s usual model.` : "",
].filter(Boolean).join(" ");

// ---- list
let limit = STEP;
const now = () => Date.now() / 1000;
const buildRow = (each) => {
  const item = make("li"), link = make("a"), first = make("span", undefined, "first"), second = make("span", undefined, "second");
  link.href = `#s/${each.id}`;
  first.append(make("span", undefined, "lamp"), make("bdi"), make("span", "", "saved"));
  second.append(make("span", "", "calls"), make("span", "", "changed"));
  link.append(first, make("span", "", "model"), make("span", undefined, "picture"), second, make("span", "", "note quiet"), make("code", "", "key-small"));
  item.append(link);
  return item;
};
const updateRow = (item, each, name) => {
  const find = (selector) => item.querySelector(selector);
  const link = find("a"), picture = find(".picture"), points = JSON.stringify(each.points || []);
  if (each.id === chosen) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
  find(".lamp").className = `lamp${each.live ? " on" : ""}${each.busy ? " busy" : ""}`;
  find(".lamp").title = each.busy ? "a request is under way" : each.live ? "live" : "";
  say(find("bdi"), name);
  link.title = brief(each.task || each.name, 300);
  say(find(".model"), [each.model, each.api].filter(Boolean).map((text) => brief(text)).join(" · "));
  say(find(".key-small"), brief(each.name));
  say(find(".saved"), each.read && each.calls ? usd(each.hiding_usd) : "");
  find(".saved").title = "saved by hiding";
  find(".saved").className = `saved ${mood(each.hiding_usd || 0)}`;
  say(find(".calls"), each.read ? `${plural(each.calls, "call")}${each.shadow ? ", shadow" : ""}${each.relation ? `, ${each.relation}` : ""}${each.role === "side" ? ", side call" : ""}${each.live ? ", live" : ""}` : "reading …");
  say(find(".changed"), ago(now() - each.changed));
  say(find(".note"), visible(each.fault ? `cannot be read: ${each.fault}` : each.hint || ""));
  find(".note").className = `note ${each.fault ? "bad" : "warn"}`;
  if (picture.dataset.points !== points) {
    picture.dataset.points = points;
    picture.replaceChildren(...(each.points && each.points.length ? [spark(each.points)] : []));
  }
};
const showList = (told) => {
  const named = names(told.sessions);
  keyed(byId("sessions"), told.sessions, (each) => each.id, buildRow, (item, each) => updateRow(item, each, named.get(each.id)));
  const searching = byId("search").value.trim();
  const part = told.found > told.sessions.length ? `The newest ${count(told.sessions.length)} of ${plural(told.found, "session")}` : "";
  say(byId("found"), searching ? `${plural(told.found, "session")} found` : part);
  byId("more-sessions").hidden = told.found <= told.sessions.length || limit >= 200;
};
const listPath = () => `sessions?${new URLSearchParams({ search: byId("search").value.trim(), limit: String(limit) })}`;

// ---- the session
let chosen = "";
let calls = [];
let edition = "";
const details = new Details((session, result) => read(session, result));
const choose = (id) => {
  if (id === chosen) return;
  chosen = id;
  calls = [];
  edition = "";
  answers.delete("session");
};
/** On a phone the session is below the list: a picked one would be out of sight. */
const below = matchMedia("(max-width: 900px)");
/** The session that a tap or Enter asked for, until its heading is reached. */
let picked = "";
const arrive = () => {
  if (!picked || picked !== chosen) return;
  picked = "";
  if (!below.matches) return;
  byId("name").focus({ preventScroll: true });
  byId("about").scrollIntoView();
};
const pick = (event) => {
  const link = event.target.closest("a");
  // With a key held down it is opened elsewhere.
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  picked = link.hash.slice("#s/".length);
  if (details.told && details.told.id === picked) arrive();
};
/** What is new of the chosen session: its newest known call again, since usage and recalls arrive after it. */
const askSession = async () => {
  const id = chosen;
  let fresh = false, more = true, value = null;
  while (more && id === chosen) {
    const after = Math.max(0, calls.length - 1);
    const answer = await ask("session", `sessions/${id}?after=${after}`);
    value = answer.value;
    if (id !== chosen) return;
    if (answer.fresh) {
      fresh = true;
      if (after > 0 && (value.edition !== edition || value.calls <= after)) {
        // Earlier calls may have changed: once more from the first.
        calls = [];
        edition = "";
        continue;
      }
      edition = value.edition;
      calls = [...calls.slice(0, value.first), ...value.made];
    }
    more = value.more && answer.fresh;
  }
  if (fresh && value) {
    byId("session").hidden = false;
    byId("warning").hidden = true;
    details.show(value, calls);
    arrive();
  }
};
const showSession = async () => {
  if (!chosen) return;
  try {
    await askSession();
  } catch (error) {
    if (!error.status) throw error;
    byId("warning").hidden = false;
    say(byId("warning"), visible(`This session cannot be shown: ${error.message}`));
    if (error.status === 404 && !byId("name").textContent) say(byId("name"), "No such session");
    arrive();
  }
};

// ---- reading what was hidden
const reader = byId("reader");
let reading = null;
const pathOf = (start) => `${API}sessions/${reading.id}/observations/${reading.handle}?start=${start}`;
const slice = async (start) => {
  const response = await fetch(pathOf(start), { cache: "no-store" });
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
};
const read = (session, { handle, tool, size, command, text }) => {
  // The text arrives in parts. end: where the next one starts; left: characters to come, unknown at first.
  reading = { id: session, handle, text: "", end: 0, left: Infinity, arriving: Promise.resolve() };
  say(byId("reader-name"), `${handle} ${brief(tool)}`);
  for (const [part, value] of [["command", command], ["placeholder", text]]) {
    say(byId(`reader-${part}`), visible(value || ""));
    byId(`reader-${part}`).hidden = byId(`reader-${part}-title`).hidden = !value;
  }
  say(byId("reader-said"), "");
  say(byId("reader-state"), "Reading …");
  byId("reader-text").textContent = "";
  byId("reader-more").hidden = true;
  if (!reader.open) reader.showModal();
  show(reading, `${tokens(size)} tokens`);
};
const part = async (mine, size) => {
  if (mine !== reading || !mine.left) return;
  const value = await slice(mine.end);
  if (mine !== reading) return;
  mine.text += value.text;
  mine.end = value.end;
  mine.left = value.letters - value.end;
  byId("reader-text").append(visible(value.text));
  const kept = value.parts.length ? `; ${plural(value.parts.length, "part")} without text (${value.parts.join(", ")})` : "";
  if (size) say(byId("reader-said"), `${size}, ${plural(value.letters, "character")}${value.error ? ", reported as an error" : ""}${kept}. Control characters appear as symbols; Copy gives the original.`);
  say(byId("reader-state"), value.letters ? "" : "It is empty.");
  byId("reader-more").hidden = !mine.left;
  say(byId("reader-more"), `Show more: ${plural(mine.left, "character")} left`);
};
/** Read the next part, after those on their way. Rejects if it cannot be read. */
const more = (mine, size) => (mine.arriving = mine.arriving.catch(() => {}).then(() => part(mine, size)));
const show = (mine, size) => more(mine, size).catch((error) => {
  if (mine === reading) say(byId("reader-state"), visible(`It cannot be read: ${error.message}`));
});
const copyAll = async () => {
  const mine = reading;
  say(byId("reader-state"), "Copying …");
  try {
    while (mine === reading && mine.left) await more(mine);
    if (mine !== reading) return;
    await copied(mine.text);
    say(byId("reader-state"), `Copied ${plural(mine.end, "character")}.`);
  } catch (error) {
    say(byId("reader-state"), visible(`Not copied: ${error.message}`));
  }
};
/** Browsers offer the clipboard on loopback and over HTTPS; elsewhere the older way. */
const copied = async (text) => {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const field = make("textarea", text);
  reader.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("the browser forbids it here; select the text instead");
};

// ---- again and again
let timer = 0, running = false, again = false, failing = 0;
const state = (lamp, text) => {
  document.querySelector("#state .lamp").className = `lamp ${lamp}`;
  say(byId("state-text"), text);
};
const look = async () => {
  const [totals, list] = await Promise.all([ask("totals", "totals"), ask("list", listPath())]);
  if (totals.fresh) showTotals(totals.value);
  if (!chosen && list.value.sessions.length) choose(list.value.sessions[0].id);
  showList(list.value);
  await showSession();
  return totals.value.unread > 0 || list.value.sessions.some((each) => !each.read);
};
const tick = async () => {
  clearTimeout(timer);
  if (running) {
    again = true;
    return;
  }
  running = true;
  let wait = USUAL;
  try {
    if (await look()) wait = SOON;
    failing = 0;
    state("on", "updates automatically");
  } catch (error) {
    failing += 1;
    wait = LATER;
    // Nobody is taken away from what they read meanwhile.
    picked = "";
    if (!(error instanceof TypeError) && !error.status) console.error(error);
    state("off", error.status === 401 || error.status === 403 ? "the gateway requires its admin token: open /?token=… once" : error.status ? visible(error.message) : "the gateway does not respond; trying again");
  }
  running = false;
  if (again) wait = 0;
  again = false;
  if (document.visibilityState === "visible") timer = setTimeout(tick, wait);
};

// ---- theme
const THEMES = ["system", "dark", "light"];
const kept = (value) => {
  try {
    if (value) localStorage.setItem("elision-theme", value);
    return localStorage.getItem("elision-theme");
  } catch {
    return value; // a browser that keeps nothing
  }
};
const theme = (name) => {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  say(byId("theme"), `Theme: ${name}`);
};
let themed = THEMES.includes(kept()) ? kept() : "system";
theme(themed);

// ---- wiring
byId("theme").addEventListener("click", () => {
  themed = THEMES[(THEMES.indexOf(themed) + 1) % THEMES.length];
  kept(themed);
  theme(themed);
});
byId("search").addEventListener("input", () => {
  limit = STEP;
  tick();
});
byId("sessions").addEventListener("click", pick);
byId("more-sessions").addEventListener("click", () => {
  limit += 2 * STEP;
  tick();
});
byId("copy").addEventListener("click", copyAll);
byId("reader-more").addEventListener("click", () => show(reading));
reader.addEventListener("close", () => {
  reading = null;
  byId("reader-text").textContent = "";
});
const fromHash = () => {
  const found = /^#s\/([\w-]+)$/.exec(location.hash);
  if (!found) return;
  choose(found[1]);
  tick();
};
addEventListener("hashchange", fromHash);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") tick();
});
say(byId("way-openai"), `export OPENAI_BASE_URL=${location.origin}/v1\n\nclient = openai.OpenAI(base_url="${location.origin}/v1")`);
say(byId("way-anthropic"), `export ANTHROPIC_BASE_URL=${location.origin}\n\nclient = anthropic.Anthropic(base_url="${location.origin}")`);
fromHash();
tick();
