// Logs that go on by themselves, and a box that completes queries. Without this, the page shows the newest lines.
"use strict";

const mostLines = 2000;

function followLog(log) {
  const lines = document.getElementById("lines");
  const [pause, following] = [document.getElementById("pause"), document.getElementById("following")];
  const offline = document.getElementById("offline");
  let after = log.dataset.after;
  let events = null;
  let retry = 0;

  function trim() {
    // A line of its own, and each of a stack trace, has this class; the collection is live.
    const shown = lines.getElementsByClassName("line");
    while (shown.length > mostLines && lines.children.length > 1) lines.firstElementChild.remove();
  }

  function show(entry) {
    const box = document.createElement("template");
    box.innerHTML = entry.html; // made and escaped by the server, as the page itself
    const before = document.getElementById(entry.id);
    const made = box.content.firstElementChild;
    if (before === null) return lines.append(made);
    if (before.open) made.open = true;
    before.replaceWith(made);
  }

  function showGap() {
    const gap = document.createElement("div");
    gap.className = "soft gap";
    gap.textContent = "Too many lines came at once: those between are left out. The download has the newest ones.";
    lines.append(gap);
  }

  function receive(event) {
    const { entries, isCut } = JSON.parse(event.data);
    after = event.lastEventId;
    if (isCut) showGap();
    entries.forEach(show);
    if (entries.length === 0) return;
    log.hidden = false;
    document.getElementById("no-lines").hidden = true;
    trim();
  }

  function stop() {
    clearTimeout(retry);
    events?.close();
    events = null;
  }

  function start() {
    stop();
    const stream = events = new EventSource(`${log.dataset.follow}&after=${encodeURIComponent(after)}`);
    stream.addEventListener("open", (event) => {
      // The server names the event once it reads the log; that of the browser has no data.
      if (event.data === undefined) return;
      offline.hidden = true;
      following.textContent = "New lines come by themselves.";
    });
    stream.addEventListener("lines", receive);
    expectBeats(stream, () => { offline.hidden = false; start(); });
    stream.addEventListener("refused", (event) => {
      offline.hidden = true;
      following.textContent = `New lines do not come: ${JSON.parse(event.data)}. This is tried again.`;
    });
    stream.addEventListener("error", () => {
      if (stream !== events) return;
      // After a refusal in words, the server ends the stream on purpose.
      if (!following.textContent.startsWith("New lines do not")) offline.hidden = false;
      // A browser gives up where the answer is no stream, such as while the server starts.
      if (stream.readyState === EventSource.CLOSED) retry = setTimeout(start, 3000);
    });
    following.textContent = "";
    pause.textContent = "Pause";
  }

  pause.addEventListener("click", () => {
    if (pause.textContent === "Continue") return start();
    stop();
    offline.hidden = true;
    pause.textContent = "Continue";
    following.textContent = "Paused. What comes meanwhile is shown when you continue.";
  });
  document.getElementById("newer").hidden = true;
  pause.hidden = false;
  addEventListener("pagehide", stop, { once: true });
  start();
}

const followed = document.querySelector("[data-follow]");
if (followed !== null) followLog(followed);

// The box of the query as a combobox: the server knows what may follow what is before the caret.
function completeQuery(input) {
  const list = document.getElementById("completions");
  let [asked, timer, chosen, options, rest] = [0, 0, -1, [], ""];
  // While the options are of what was written before, keys wait for those of what is written now.
  let [isOutdated, keys] = [false, []];
  for (const [name, value] of [["role", "combobox"], ["aria-controls", list.id], ["aria-autocomplete", "list"], ["aria-expanded", "false"]]) {
    input.setAttribute(name, value);
  }
  input.removeAttribute("list");

  function close() {
    asked += 1;
    clearTimeout(timer);
    options = [];
    [isOutdated, keys] = [false, []];
    draw();
  }

  function draw() {
    list.replaceChildren(...options.map((option, place) => {
      const [item, meaning] = [document.createElement("li"), document.createElement("span")];
      item.id = `completion-${place}`;
      item.setAttribute("role", "option");
      item.textContent = `${option.label} `;
      meaning.className = "soft";
      meaning.textContent = option.meaning;
      item.append(meaning);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); if (!isOutdated) accept(option); });
      return item;
    }));
    list.hidden = options.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    choose(-1);
  }

  function choose(place) {
    chosen = place;
    [...list.children].forEach((item, number) => item.setAttribute("aria-selected", String(number === place)));
    if (place < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[place].id);
    list.children[place].scrollIntoView({ block: "nearest" });
  }

  function accept(option) {
    input.value = option.text + rest;
    input.setSelectionRange(option.text.length, option.text.length);
    close();
    ask();
  }

  async function ask() {
    const number = asked += 1;
    const caret = input.selectionStart;
    isOutdated = true;
    let found = [];
    try {
      const answer = await fetch(`${input.dataset.complete}?query=${encodeURIComponent(input.value.slice(0, caret))}`);
      if (answer.ok) found = (await answer.json()).options;
    } catch {
      // The server does not answer, or asks for a login: the box is only a box then.
    }
    if (number !== asked || document.activeElement !== input) return;
    [options, rest] = [found, input.value.slice(caret)];
    const waiting = keys;
    [isOutdated, keys] = [false, []];
    draw();
    for (const key of waiting) press(key);
  }

  // Whether the key is for the list, which is of what is written now or may still come.
  function press(key) {
    const moves = key === "ArrowDown" || key === "ArrowUp";
    if (isOutdated && (moves || (key === "Enter" && keys.length))) keys.push(key);
    else if (key === "ArrowDown" && list.hidden) ask();
    else if (key === "ArrowDown" && options.length) choose((chosen + 1) % options.length);
    else if (key === "ArrowUp" && options.length) choose(chosen <= 0 ? options.length - 1 : chosen - 1);
    else if (key === "Enter" && chosen >= 0) accept(options[chosen]);
    else if (key === "Escape" && (isOutdated || !list.hidden)) close();
    else return false;
    return true;
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    [isOutdated, keys] = [true, []];
    choose(-1);
    timer = setTimeout(ask, 120);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => { if (press(event.key)) event.preventDefault(); });
}

completeQuery(document.getElementById("query"));
