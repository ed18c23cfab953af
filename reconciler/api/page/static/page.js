// What the page does beside what a browser does by itself. Without it, every link and form works.
"use strict";

const shortcuts = { h: "/", r: "/ui/resources", u: "/ui/runs", l: "/ui/logs", m: "/ui/notifications" };
let pressed = "";

// A shortcut to what the navigation has; somebody may not see all of it.
function findView(key) {
  return key in shortcuts ? document.querySelector(`header nav a[href="${shortcuts[key]}"]`) : null;
}

function isTyping(element) {
  return element.matches("input, select, textarea, [contenteditable]");
}

// Escape takes a confirmation back, and goes where it came from.
document.addEventListener("keydown", (event) => {
  const box = event.key === "Escape" ? event.target.closest("details.confirm[open], details.actions-box[open]") : null;
  if (box === null) return;
  box.open = false;
  box.querySelector("summary").focus();
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const dialog = document.getElementById("shortcuts");
  if (event.key === "?") dialog.showModal();
  else if (event.key === "/" && !dialog.open) document.getElementById("search").focus();
  else if (pressed === "g" && findView(event.key)) location.assign(shortcuts[event.key]);
  else { pressed = event.key; return; }
  pressed = "";
  event.preventDefault();
});

document.addEventListener("click", (event) => {
  const text = event.target.dataset?.copy;
  if (text === undefined) return;
  navigator.clipboard.writeText(text).then(() => { event.target.textContent = "Copied"; });
});

function showCopies() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
}

// The server writes ages; a page that stays open counts on.
function format(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)}${unit} ago`;
  }
  return `${Math.max(0, Math.floor(seconds))}s ago`;
}

function showAges() {
  for (const time of document.querySelectorAll("time[title]")) {
    time.textContent = format((Date.now() - Date.parse(time.dateTime)) / 1000);
  }
}

// Favourites are in this browser alone, apart for each person who logs in here.
const who = document.querySelector(".who span")?.textContent ?? "";

function readFavourites() {
  try {
    const kept = JSON.parse(localStorage.getItem(`favourites ${who}`) ?? "[]");
    return Array.isArray(kept) ? kept.filter((key) => typeof key === "string") : [];
  } catch {
    return [];
  }
}

function showFavourites() {
  const favourites = readFavourites();
  for (const star of document.querySelectorAll("[data-favourite]")) {
    star.hidden = false;
    star.setAttribute("aria-pressed", favourites.includes(star.dataset.favourite));
  }
  const list = document.querySelector("#favourites ul");
  if (!list) return;
  list.replaceChildren(...favourites.map((key) => {
    const link = document.createElement("a");
    link.className = "key";
    link.href = `/ui/resource/${key.split("/").map(encodeURIComponent).join("/")}`;
    link.textContent = key;
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  list.parentElement.hidden = favourites.length === 0;
}

document.addEventListener("click", (event) => {
  const key = event.target.dataset?.favourite;
  if (key === undefined) return;
  const favourites = readFavourites();
  const kept = favourites.includes(key) ? favourites.filter((one) => one !== key) : [...favourites, key].sort();
  try { localStorage.setItem(`favourites ${who}`, JSON.stringify(kept)); } catch { return; }
  showFavourites();
});

// A page that changes under the hands of somebody who writes or chooses would lose what they do.
function isInUse() {
  const main = document.getElementById("main");
  return document.hidden || document.querySelector("dialog[open]") !== null
    || main.querySelector("details.actions-box[open], details.confirm[open]") !== null
    || (main.contains(document.activeElement) && isTyping(document.activeElement));
}

// What has the focus, by what it is and where: rows may move, and an element may become that of another row.
let focused = null;

function describe(element) {
  const row = element.closest("tr, .card")?.querySelector("th, h3")?.textContent;
  const words = element.matches("a, button, summary") ? element.textContent : "";
  const action = element.closest("form")?.getAttribute("action");
  return [element.tagName, element.id, element.getAttribute("href"), element.name, action, row, words].join("\n");
}

function rememberFocus() {
  const element = document.activeElement;
  focused = document.getElementById("main").contains(element) ? { element, name: describe(element) } : null;
}

function restoreFocus() {
  const now = document.activeElement;
  if (focused === null || (now === focused.element && describe(now) === focused.name)) return;
  const same = document.querySelectorAll(`#main ${focused.element.tagName}`);
  [...same].find((one) => describe(one) === focused.name)?.focus({ preventScroll: true });
}

let newest = null;

function refresh() {
  if (!isInUse()) document.body.dispatchEvent(new Event("recorded"));
}

// The server sends what the page shows. It waits while somebody writes, or looks elsewhere.
function showNewest() {
  if (newest === null || isInUse()) return;
  const main = document.getElementById("main");
  const text = newest;
  newest = null;
  rememberFocus();
  htmx.swap({ text, sourceElement: main, target: main, swap: "outerMorph", select: "#main" });
}

// A connection may be lost without a word, as behind a proxy or after sleep: then not even the beats of the server come.
const longestSilence = 40000;

function expectBeats(events, giveUp) {
  let timer = 0;
  const wait = () => { clearTimeout(timer); timer = setTimeout(() => { if (events.readyState !== EventSource.CLOSED) giveUp(); }, longestSilence); };
  for (const name of ["open", "beat", "recorded", "view", "lines", "refused", "error"]) events.addEventListener(name, wait);
  wait();
}

function follow(wasLost = false) {
  const offline = document.getElementById("offline");
  const events = new EventSource(`/ui/events?view=${encodeURIComponent(location.pathname + location.search)}`);
  const connectAgain = () => { events.close(); follow(true); };
  expectBeats(events, () => { offline.hidden = false; connectAgain(); });
  events.addEventListener("open", () => {
    offline.hidden = true;
    if (wasLost) refresh();
    wasLost = false;
  });
  events.addEventListener("recorded", refresh);
  events.addEventListener("view", (event) => { newest = event.data; showNewest(); });
  events.addEventListener("error", () => {
    wasLost = true;
    offline.hidden = false;
    // A browser gives up where the answer is no stream, such as while the server starts.
    if (events.readyState === EventSource.CLOSED) setTimeout(connectAgain, 3000);
  });
  addEventListener("pagehide", () => events.close(), { once: true });
}

// A request that takes long is no loss of the connection: nothing else would say so.
const slowAfter = 2000;
const timers = new Map();
const slow = new Set();

function showSlow() {
  document.getElementById("slow").hidden = slow.size === 0;
}

document.addEventListener("htmx:before:request", (event) => {
  clearTimeout(timers.get(event.target));
  timers.set(event.target, setTimeout(() => { slow.add(event.target); showSlow(); }, slowAfter));
});
document.addEventListener("htmx:finally:request", (event) => {
  clearTimeout(timers.get(event.target));
  timers.delete(event.target);
  slow.delete(event.target);
  showSlow();
});

showCopies();
showFavourites();
setInterval(showAges, 10000);
setInterval(showNewest, 1000);
document.addEventListener("visibilitychange", showNewest);
// Somebody may have begun while the answer was on its way. A search replaces its own rows, which is what it is for.
document.addEventListener("htmx:before:swap", (event) => {
  if (event.target.id === "main" && isInUse()) event.preventDefault();
  else rememberFocus();
});
document.addEventListener("htmx:after:swap", () => { showCopies(); showAges(); showFavourites(); restoreFocus(); });
if (document.querySelector("main[data-live]")) follow();
